// A real client for the lab: the TypeScript SDK. Lists tools, makes the given calls, prints one JSON object.
//
//   node client.mjs URL MODE [--header 'Name: value']... [CALLS]
//
// MODE: legacy | auto | 2026-07-28. CALLS: a JSON array of {"name", "arguments"}, given as text, as a file, or "-" for
// stdin. Printed: {"client", "era", "version", "tools": [names], "results": [one per call]}. A call that the
// server answers with a JSON-RPC error is a result, {"name", "error": {"code", "message"}}. Exit 1: no connection, no
// list, or a call without an answer. Exit 2: wrong use.

import { readFileSync } from 'node:fs';
import { Client, ProtocolError, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const DEADLINE_MS = 60_000;
const MODES = { legacy: 'legacy', auto: 'auto', '2026-07-28': { pin: '2026-07-28' } };

function usage(problem) {
  console.error(`client.mjs: ${problem}\nuse: client.mjs URL legacy|auto|2026-07-28 [--header 'Name: value']... [CALLS]`);
  process.exit(2);
}

function parseArguments(argv) {
  const headers = {};
  const rest = [];
  for (let i = 0; i < argv.length; i += 1) {
    if (argv[i] !== '--header') {
      rest.push(argv[i]);
      continue;
    }
    i += 1;
    const colon = (argv[i] ?? '').indexOf(':');
    if (colon < 1) usage(`--header wants 'Name: value', got ${argv[i] ?? 'nothing'}`);
    headers[argv[i].slice(0, colon).trim()] = argv[i].slice(colon + 1).trim();
  }
  const [url, mode, calls = '[]'] = rest;
  if (!URL.canParse(url ?? '')) usage(`not a URL: ${url ?? 'nothing'}`);
  if (!Object.hasOwn(MODES, mode ?? '')) usage(`unknown mode: ${mode ?? 'nothing'}`);
  if (rest.length > 3) usage(`too many arguments: ${rest.slice(3).join(' ')}`);
  return { url: new URL(url), mode, headers, calls: readCalls(calls) };
}

function readCalls(given) {
  const text = given.trimStart().startsWith('[') ? given : readFileSync(given === '-' ? 0 : given, 'utf8');
  const calls = JSON.parse(text);
  if (!Array.isArray(calls) || calls.some((call) => typeof call?.name !== 'string')) {
    usage('CALLS must be a JSON array of {"name", "arguments"}');
  }
  return calls;
}

async function listAll(client) {
  const names = [];
  let cursor;
  do {
    const page = await client.listTools(cursor === undefined ? {} : { cursor });
    names.push(...page.tools.map((tool) => tool.name));
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return names;
}

async function callOne(client, { name, arguments: args = {} }) {
  try {
    const { content, structuredContent, isError = false } = await client.callTool({ name, arguments: args });
    return { name, isError, content, structuredContent };
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    return { name, error: { code: error.code, message: error.message } };
  }
}

async function main() {
  const { url, mode, headers, calls } = parseArguments(process.argv.slice(2));
  const client = new Client({ name: 'lab-typescript', version: '1' }, { versionNegotiation: { mode: MODES[mode] } });
  const transport = new StreamableHTTPClientTransport(url, { requestInit: { headers } });
  await client.connect(transport);
  const tools = await listAll(client);
  const results = [];
  for (const call of calls) results.push(await callOne(client, call));
  const report = {
    client: 'typescript',
    era: client.getProtocolEra(),
    version: client.getNegotiatedProtocolVersion(),
    tools,
    results,
  };
  if (transport.sessionId !== undefined) await transport.terminateSession();
  await client.close();
  process.stdout.write(`${JSON.stringify(report)}\n`);
}

function fail(error) {
  const causes = [];
  for (let e = error; e; e = e.cause) causes.push(e.message ?? String(e));
  console.error(`client.mjs: ${causes.join(': ')}`);
  process.exit(1);
}

setTimeout(() => fail(new Error(`no end after ${DEADLINE_MS / 1000} s`)), DEADLINE_MS).unref();
main().catch(fail);
