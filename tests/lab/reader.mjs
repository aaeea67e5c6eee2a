// A real client for the lab that reads what is linked: the TypeScript SDK. As reader.py, with the same arguments and
// the same JSON object out:
//
//   node reader.mjs URL MODE KEY CALL LENGTH

import { createHash } from 'node:crypto';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const CUT = '\n[cut by the gateway: ';
const MODES = { legacy: 'legacy', auto: 'auto', '2026-07-28': { pin: '2026-07-28' } };

// Lengths are counted in characters, which a string of this language is not made of.
const length = (part) => (typeof part === 'string' ? [...part].length : part.length);
const hashed = (data) => createHash('sha256').update(data).digest('hex');

async function read(client, uri) {
  const { contents } = await client.readResource({ uri });
  if (contents.length !== 1) throw new Error(`${contents.length} contents of ${uri}`);
  return contents[0].blob === undefined ? contents[0].text : Buffer.from(contents[0].blob, 'base64');
}

async function readAll(client, link, shown, step) {
  const [base, query = ''] = link.uri.split('?');
  const asked = new URLSearchParams(query);
  let offset = Number(asked.get('offset') ?? 0);
  let left = Number(asked.get('length') ?? link.size ?? 0);
  const parts = [];
  while (left > 0) {
    const part = await read(client, `${base}?offset=${offset}&length=${Math.min(step, left)}`);
    if (length(part) === 0) throw new Error(`nothing at ${offset} of ${link.uri}`);
    parts.push(part);
    offset += length(part);
    left -= length(part);
  }
  const text = typeof parts[0] === 'string';
  const joined = text ? (link.mimeType === 'text/plain' ? shown : '') + parts.join('') : Buffer.concat(parts);
  const report = { uri: link.uri, total: length(joined), parts: parts.length, sha256: hashed(joined) };
  return text ? report : { ...report, whole: hashed(await read(client, base)) };
}

function short(result) {
  for (const block of result.content ?? []) {
    if (block.text?.length > 1000) block.text = [...block.text.slice(0, 2000)].slice(0, 1000).join('');
  }
  return result;
}

const [url, mode, key, call, step] = process.argv.slice(2);
if (step === undefined) process.exit(2);
const headers = { Authorization: `Bearer ${key}` };
const client = new Client({ name: 'lab-reader', version: '1' }, { versionNegotiation: { mode: MODES[mode] } });
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
const { name, arguments: given } = JSON.parse(call);
const result = await client.callTool({ name, arguments: given ?? {} });
const shown = result.content.find((block) => block.text?.includes(CUT))?.text.split(CUT)[0] ?? '';
const own = result.content.filter((block) => block.type === 'resource_link' && /^portcullis\+(blob|overflow):/.test(block.uri));
const links = [];
for (const link of own) links.push(await readAll(client, link, shown, Number(step)));
console.log(JSON.stringify({ links, result: short(result) }));
await client.close();
