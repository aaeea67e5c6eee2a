// A server on the published SDK, over stdio, both eras, whose resources have strange URIs: those of uris.json.
//
// Whatever is read is a text that is the URI as this server was asked for it. The tool `links` returns each as a link and as an
// embedded resource.

import { readFileSync } from 'node:fs';
import { Server } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';

const { resources, templates } = JSON.parse(readFileSync(new URL('uris.json', import.meta.url), 'utf8'));
const unique = [...new Set(templates.map(([template]) => template))];

serveStdio(() => {
  const server = new Server({ name: 'uris', version: '1.0.0' }, { capabilities: { resources: {}, tools: {} } });
  server.setRequestHandler('resources/list', () => ({ resources: resources.map((uri, at) => ({ uri, name: `r${at}` })) }));
  server.setRequestHandler('resources/templates/list', () => ({
    resourceTemplates: unique.map((uriTemplate, at) => ({ uriTemplate, name: `t${at}` })),
  }));
  server.setRequestHandler('resources/read', ({ params: { uri } }) => ({ contents: [{ uri, text: uri }] }));
  server.setRequestHandler('tools/list', () => ({ tools: [{ name: 'links', inputSchema: { type: 'object' } }] }));
  server.setRequestHandler('tools/call', () => ({
    content: resources.flatMap((uri, at) => [
      { type: 'resource_link', uri, name: `r${at}` },
      { type: 'resource', resource: { uri, text: uri } },
    ]),
  }));
  return server;
});
