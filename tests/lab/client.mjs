// A real client for the lab: the TypeScript SDK. Lists tools, makes the given calls, prints one JSON object.
//
//   node client.mjs TARGET MODE [--header 'Name: value']... [--tools N] [--answer ACTION] [CALLS]
//
// TARGET: a URL, where a path below /sse is spoken to over HTTP+SSE, or a JSON array ["command", "argument", ...] that is
// started and spoken to over stdio. MODE: legacy | auto | 2026-07-28. --tools: list again until there are N, for a while; a
// server may add some after its start. CALLS: a JSON array of {"name", "arguments"}, given as text, as a file, or "-" for
// stdin; with "progress": true its result has what was told of it, {"progress": [numbers]}. --answer: declares elicitation
// (form and URL), sampling and roots, and answers: elicitations by ACTION (accept | decline | cancel), the others always;
// what was asked is printed too, as "asked". Printed: {"client", "era", "version", "tools": [names], "results": [one per
// call]}. A call that the server answers with a JSON-RPC error is a result, {"name", "error": {"code", "message"}}. Exit 1: no connection, no
// list, or a call without an answer. Exit 2: wrong use.

import { readFileSync } from 'node:fs';
import { Client, ProtocolError, SSEClientTransport, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const DEADLINE_MS = 60_000;
const SETTLE_MS = 20_000;
const PAUSE_MS = 100;
const MODES = { legacy: 'legacy', auto: 'auto', '2026-07-28': { pin: '2026-07-28' } };

function usage(problem) {
  console.error(`client.mjs: ${problem}\nuse: client.mjs TARGET legacy|auto|2026-07-28 [--header 'Name: value']... [--tools N] [--answer ACTION] [CALLS]`);
  process.exit(2);
}

function parseArguments(argv) {
  const headers = {};
  const rest = [];
  let count = 0;
  let action;
  for (let i = 0; i < argv.length; i += 1) {
    if (argv[i] === '--tools') {
      i += 1;
      count = Number(argv[i]);
      if (!Number.isInteger(count)) usage(`--tools wants a number, got ${argv[i] ?? 'nothing'}`);
      continue;
    }
    if (argv[i] === '--answer') {
      i += 1;
      action = argv[i];
      if (!['accept', 'decline', 'cancel'].includes(action)) usage(`--answer wants an action, got ${action ?? 'nothing'}`);
      continue;
    }
    if (argv[i] !== '--header') {
      rest.push(argv[i]);
      continue;
    }
    i += 1;
    const colon = (argv[i] ?? '').indexOf(':');
    if (colon < 1) usage(`--header wants 'Name: value', got ${argv[i] ?? 'nothing'}`);
    headers[argv[i].slice(0, colon).trim()] = argv[i].slice(colon + 1).trim();
  }
  const [target, mode, calls = '[]'] = rest;
  const started = target?.startsWith('[') ?? false;
  if (!started && !URL.canParse(target ?? '')) usage(`not a URL: ${target ?? 'nothing'}`);
  if (!Object.hasOwn(MODES, mode ?? '')) usage(`unknown mode: ${mode ?? 'nothing'}`);
  if (rest.length > 3) usage(`too many arguments: ${rest.slice(3).join(' ')}`);
  return { transport: started ? pipes(target) : http(target, headers), mode, count, action, calls: readCalls(calls) };
}

const ABLE = { elicitation: { form: {}, url: {} }, sampling: {}, roots: { listChanged: true } };

/** Has a client answer what it is asked; what that was is noted. */
function answers(client, action, asked) {
  client.setRequestHandler('elicitation/create', async ({ params }) => {
    asked.push({ method: 'elicitation/create', mode: params.mode ?? 'form', message: params.message });
    if (action !== 'accept' || params.mode === 'url') return { action };
    return { action, content: { name: 'Ann' } };
  });
  client.setRequestHandler('sampling/createMessage', async ({ params }) => {
    asked.push({ method: 'sampling/createMessage', message: params.systemPrompt });
    return { role: 'assistant', content: { type: 'text', text: 'Paris' }, model: 'lab' };
  });
  client.setRequestHandler('roots/list', async () => {
    asked.push({ method: 'roots/list' });
    return { roots: [{ uri: 'file:///lab', name: 'lab' }] };
  });
}

function pipes(target) {
  const [command, ...args] = JSON.parse(target);
  return new StdioClientTransport({ command, args, env: process.env });
}

function http(target, headers) {
  const url = new URL(target);
  const Transport = /^\/sse(\/|$)/.test(url.pathname) ? SSEClientTransport : StreamableHTTPClientTransport;
  return new Transport(url, { requestInit: { headers } });
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

async function listSettled(client, count) {
  const deadline = Date.now() + SETTLE_MS;
  for (;;) {
    const names = await listAll(client);
    if (names.length >= count || Date.now() > deadline) return names;
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

async function callOne(client, { name, arguments: args = {}, progress = false }) {
  const told = progress ? [] : undefined;
  const options = told && { onprogress: ({ progress: value }) => told.push(value) };
  try {
    const { content, structuredContent, isError = false } = await client.callTool({ name, arguments: args }, options);
    return { name, isError, content, structuredContent, progress: told };
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    return { name, error: { code: error.code, message: error.message } };
  }
}

async function main() {
  const { transport, mode, count, action, calls } = parseArguments(process.argv.slice(2));
  const capabilities = action === undefined ? {} : ABLE;
  const options = { capabilities, versionNegotiation: { mode: MODES[mode] } };
  const client = new Client({ name: 'lab-typescript', version: '1' }, options);
  const asked = [];
  if (action !== undefined) answers(client, action, asked);
  await client.connect(transport);
  const tools = await listSettled(client, count);
  const results = [];
  for (const call of calls) results.push(await callOne(client, call));
  const report = {
    client: 'typescript',
    era: client.getProtocolEra(),
    version: client.getNegotiatedProtocolVersion(),
    tools,
    results,
    ...(action === undefined ? {} : { asked }),
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
