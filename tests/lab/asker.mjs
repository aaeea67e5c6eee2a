// A server of 2026-07-28 for the lab, on the published SDK, over stdio: its one tool asks for a name and greets whoever
// gives it. It keeps nothing between the tries.

import { inputRequired, Server } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';

const TOOL = { name: 'greet', description: 'Asks for a name', inputSchema: { type: 'object', properties: {} } };
const FORM = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };
const text = (said) => ({ content: [{ type: 'text', text: said }] });

serveStdio(() => {
  const server = new Server({ name: 'lab-asker', version: '1' }, { capabilities: { tools: {} } });
  server.setRequestHandler('tools/list', async () => ({ tools: [TOOL] }));
  server.setRequestHandler('tools/call', async (_request, ctx) => {
    const given = ctx.mcpReq.inputResponses?.who;
    if (given === undefined) {
      return inputRequired({ inputRequests: { who: inputRequired.elicit({ message: 'Your name?', requestedSchema: FORM }) } });
    }
    return text(given.action === 'accept' ? `Hello, ${given.content.name}!` : `No greeting: ${given.action}`);
  });
  return server;
});
