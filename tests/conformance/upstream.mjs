// The MCP server behind the gateway: what the suite's scenarios expect to find, on the published SDK, in both eras.
//
//   PORT=4103 node upstream.mjs     Streamable HTTP, http://127.0.0.1:4103/mcp
//   node upstream.mjs --stdio

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { NodeStreamableHTTPServerTransport, toNodeHandler } from '@modelcontextprotocol/node';
import { classifyInboundRequest, createMcpHandler, ProtocolError, Server } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { ask, contextForm, field, makeTools, PNG, stateCodec } from './tools.mjs';

const INFO = { name: 'conformance-upstream', version: '1.0.0' };
const CAPABILITIES = {
  tools: { listChanged: true },
  resources: { subscribe: true, listChanged: true },
  prompts: { listChanged: true },
  logging: {},
  completions: {},
};
const RETRY_MS = 500;

// === resources and prompts ===

const RESOURCES = {
  'test://static-text': { mimeType: 'text/plain', text: 'This is the content of the static text resource.' },
  'test://static-binary': { mimeType: 'image/png', blob: PNG },
  'test://watched-resource': { mimeType: 'text/plain', text: 'Watched resource content' },
};
const TEMPLATE = {
  uriTemplate: 'test://template/{id}/data',
  name: 'template',
  description: 'A template',
  mimeType: 'application/json',
};

function readResource(uri) {
  const id = /^test:\/\/template\/([^/]+)\/data$/.exec(uri)?.[1];
  if (id !== undefined) {
    const data = JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` });
    return { contents: [{ uri, mimeType: TEMPLATE.mimeType, text: data }] };
  }
  if (!Object.hasOwn(RESOURCES, uri)) throw new ProtocolError(-32602, 'Resource not found', { uri });
  return { contents: [{ uri, ...RESOURCES[uri] }] };
}

const user = (content) => ({ role: 'user', content });
const userText = (text) => user({ type: 'text', text });

/** name → [names of its arguments, what it answers: messages, or a whole result] */
const PROMPTS = {
  test_simple_prompt: [[], () => [userText('This is a simple prompt for testing.')]],
  test_prompt_with_arguments: [
    ['arg1', 'arg2'],
    (args) => [userText(`Prompt with arguments: arg1='${args.arg1}', arg2='${args.arg2}'`)],
  ],
  test_prompt_with_embedded_resource: [
    ['resourceUri'],
    ({ resourceUri: uri }) => [
      user({ type: 'resource', resource: { uri, mimeType: 'text/plain', text: 'Embedded resource content.' } }),
      userText('Please process the embedded resource above.'),
    ],
  ],
  test_prompt_with_image: [
    [],
    () => [user({ type: 'image', data: PNG, mimeType: 'image/png' }), userText('Please analyze the image above.')],
  ],
  test_input_required_result_prompt: [
    [],
    (_, ctx) => {
      const context = field(ctx, 'user_context', 'context');
      return context === undefined ? ask({ user_context: contextForm() }) : [userText(`Context: ${context}`)];
    },
  ],
};

async function getPrompt({ name, arguments: args = {} }, ctx) {
  if (!Object.hasOwn(PROMPTS, name)) throw new ProtocolError(-32602, 'Unknown prompt');
  const answer = await PROMPTS[name][1](args, ctx);
  return Array.isArray(answer) ? { messages: answer } : answer;
}

// === the server, once per connection or request ===

/** Whether there is one prompt more. */
let extraPrompt = false;
/** Servers of the connections that stay, to tell them of changes. */
const connected = new Set();
/** Streamable HTTP of the 2025 era: session id → transport. */
const sessions = new Map();
/** The stateless handler's way to tell all who listen; HTTP only. */
let listeners;

const tell = (what) => {
  for (const server of connected) what(server).catch(() => connected.delete(server));
};
const tools = makeTools({
  toolsChanged() {
    listeners?.toolsChanged();
    tell((server) => server.sendToolListChanged());
  },
  promptsChanged() {
    // A real change: a list that only claims to have changed is no news.
    extraPrompt = !extraPrompt;
    if (extraPrompt) PROMPTS.test_extra_prompt = PROMPTS.test_simple_prompt;
    else delete PROMPTS.test_extra_prompt;
    listeners?.promptsChanged();
    tell((server) => server.sendPromptListChanged());
  },
  closeStream(ctx) {
    sessions.get(ctx.sessionId)?.closeSSEStream(ctx.mcpReq.id);
  },
});

function make() {
  const server = new Server(INFO, { capabilities: CAPABILITIES, requestState: { verify: stateCodec.verify } });
  server.setRequestHandler('tools/list', () => ({ tools: tools.list() }));
  server.setRequestHandler('tools/call', ({ params }, ctx) => tools.call(params.name, params.arguments ?? {}, ctx));
  server.setRequestHandler('resources/list', () => ({
    resources: Object.entries(RESOURCES).map(([uri, { mimeType }]) => ({
      uri,
      name: uri.slice(7),
      description: `The resource ${uri}`,
      mimeType,
    })),
  }));
  server.setRequestHandler('resources/templates/list', () => ({ resourceTemplates: [TEMPLATE] }));
  server.setRequestHandler('resources/read', ({ params }) => readResource(params.uri));
  server.setRequestHandler('resources/subscribe', () => ({}));
  server.setRequestHandler('resources/unsubscribe', () => ({}));
  server.setRequestHandler('prompts/list', () => ({
    prompts: Object.entries(PROMPTS).map(([name, [args]]) => ({
      name,
      description: `The prompt ${name}`,
      arguments: args.map((argument) => ({ name: argument, description: 'Any text', required: true })),
    })),
  }));
  server.setRequestHandler('prompts/get', ({ params }, ctx) => getPrompt(params, ctx));
  server.setRequestHandler('completion/complete', () => ({ completion: { values: [], total: 0, hasMore: false } }));
  server.setRequestHandler('logging/setLevel', () => ({}));
  return server;
}

/** A server that lives as long as its connection. */
function makeConnected() {
  const server = make();
  connected.add(server);
  return server;
}

// === HTTP ===

/** Keeps what went out on a session's streams, for clients that come back with Last-Event-ID. */
function eventStore() {
  const events = [];
  return {
    async storeEvent(stream, message) {
      const id = `${stream}::${events.length}`;
      events.push({ id, stream, message });
      return id;
    },
    async replayEventsAfter(last, { send }) {
      const at = events.findIndex((event) => event.id === last);
      const stream = events[at]?.stream ?? '';
      for (const { id, message } of at < 0 ? [] : events.slice(at + 1).filter((event) => event.stream === stream)) {
        if (message && Object.keys(message).length) await send(id, message);
      }
      return stream;
    },
  };
}

/** What a mirrored header says, `null` if it says nothing readable. */
function mirrored(header) {
  const base64 = /^=\?base64\?(.*)\?=$/.exec(header ?? '')?.[1];
  if (base64 === undefined) return header;
  const whole = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(base64);
  return whole ? Buffer.from(base64, 'base64').toString() : null;
}

/** 2026-07-28: an argument with `x-mcp-header` must stand in its header too. */
const disagrees = (headers, body) =>
  headers['mcp-protocol-version'] === '2026-07-28' &&
  body?.method === 'tools/call' &&
  body.params?.name === 'test_x_mcp_header' &&
  mirrored(headers['mcp-param-region']) !== body.params.arguments?.region;

const LOCAL = /^(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$/;
const local = ({ host = '', origin }) => LOCAL.test(host) && (!origin || LOCAL.test(URL.parse(origin)?.host ?? ''));

async function bodyOf(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return JSON.parse(Buffer.concat(chunks).toString());
}

async function newSession() {
  const transport = new NodeStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    eventStore: eventStore(),
    retryInterval: RETRY_MS,
    onsessioninitialized: (id) => sessions.set(id, transport),
  });
  const server = makeConnected();
  await server.connect(transport);
  const closed = transport.onclose;
  transport.onclose = () => {
    sessions.delete(transport.sessionId);
    connected.delete(server);
    closed?.();
  };
  return transport;
}

function serveHttp(port) {
  const handler = createMcpHandler(make);
  listeners = handler.notify;
  const stateless = toNodeHandler(handler);

  async function serve(request, response) {
    const { method, headers } = request;
    const refuse = (status, code, message) => {
      response.writeHead(status, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ jsonrpc: '2.0', error: { code, message }, id: null }));
    };
    if (!local(headers)) return refuse(403, -32000, 'Host or Origin not allowed');
    if (request.url !== '/mcp') return refuse(404, -32000, 'Not found');
    let body;
    if (method === 'POST') {
      try {
        body = await bodyOf(request);
      } catch {
        return refuse(400, -32700, 'Parse error');
      }
      if (disagrees(headers, body)) return refuse(400, -32020, 'Mcp-Param-Region does not match the argument');
      const { kind } = classifyInboundRequest({
        httpMethod: 'POST',
        protocolVersionHeader: headers['mcp-protocol-version'],
        mcpMethodHeader: headers['mcp-method'],
        body,
      });
      if (kind !== 'legacy') return stateless(request, response, body);
    }
    const id = headers['mcp-session-id'];
    let transport = sessions.get(id);
    if (id && !transport) return refuse(404, -32001, 'Session not found');
    if (!transport) {
      if (body?.method !== 'initialize') return refuse(400, -32000, 'Session required');
      transport = await newSession();
    }
    return transport.handleRequest(request, response, body);
  }

  const listening = () => console.error(`listening on ${port}`);
  createServer((request, response) => {
    serve(request, response).catch((error) => {
      console.error(error);
      response.destroy();
    });
  }).listen(port, '127.0.0.1', listening);
}

if (process.argv.includes('--stdio')) serveStdio(makeConnected);
else serveHttp(Number(process.env.PORT ?? 4103));
