// The tools that the suite's scenarios call, written from the texts of the scenarios. Each entry is
// [properties of its input, what it does, names of required properties].

import { randomBytes } from 'node:crypto';
import {
  CLIENT_CAPABILITIES_META_KEY,
  createRequestStateCodec,
  inputRequired,
  ProtocolError,
} from '@modelcontextprotocol/server';

export const PNG =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';
const WAV = 'UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=';
const STEP_MS = 50; // between two messages of one call, so that they are seen one by one

/** Proves in the second round that the state is the one given out in the first. */
export const stateCodec = createRequestStateCodec({ key: new Uint8Array(randomBytes(32)) });

const string = { type: 'string' };
const object = (properties = {}, required = []) => ({
  type: 'object',
  properties,
  ...(required.length ? { required } : {}),
});
const text = (said) => ({ content: [{ type: 'text', text: said }] });
const image = { type: 'image', data: PNG, mimeType: 'image/png' };
const resource = (uri, mimeType, said) => ({ type: 'resource', resource: { uri, mimeType, text: said } });
const pause = () => new Promise((done) => setTimeout(done, STEP_MS));

// === questions in a result, 2026-07-28 ===

const formOf = (message, field, schema = string) =>
  inputRequired.elicit({ message, requestedSchema: object({ [field]: schema }, [field]) });
const nameForm = () => formOf('What is your name?', 'name');
const capitalQuestion = () =>
  inputRequired.createMessage({
    messages: [{ role: 'user', content: { type: 'text', text: 'What is the capital of France?' } }],
    maxTokens: 50,
  });
const response = (ctx, key) => {
  const given = ctx.mcpReq.inputResponses?.[key];
  return given && typeof given === 'object' ? given : undefined;
};
/** One field of an answered form. */
export const field = (ctx, key, name) => response(ctx, key)?.content?.[name];
export const ask = (inputRequests, state) =>
  inputRequired(state === undefined ? { inputRequests } : { inputRequests, requestState: state });
export const contextForm = () => formOf('Which context?', 'context');

async function confirmed(ctx, done) {
  if (field(ctx, 'confirm', 'ok') !== undefined) return text(done());
  return ask({ confirm: formOf('ok?', 'ok', { type: 'boolean' }) }, await stateCodec.mint({ step: 1 }));
}

// === questions in either era: on the way, or in the result ===

const asking = async (ctx, question, say) => {
  const given = ctx.mcpReq.envelope ? response(ctx, 'it') : await ctx.mcpReq.send(question);
  return given ? text(say(given)) : ask({ it: question });
};
const elicit = (ctx, what, message, requestedSchema) =>
  asking(ctx, inputRequired.elicit({ message, requestedSchema }), (given) => `${what}: ${answered(given)}`);
const answered = (result) => `action=${result.action}, content=${JSON.stringify(result.content ?? {})}`;

const DEFAULTS = object({
  name: { ...string, default: 'John Doe' },
  age: { type: 'integer', default: 30 },
  score: { type: 'number', default: 95.5 },
  status: { ...string, enum: ['active', 'inactive', 'pending'], default: 'active' },
  verified: { type: 'boolean', default: true },
});
const titled = ['First', 'Second', 'Third'].map((title, at) => ({ const: `value${at + 1}`, title }));
const options = { ...string, enum: ['option1', 'option2', 'option3'] };
const ENUMS = object({
  untitledSingle: options,
  titledSingle: { ...string, oneOf: titled },
  legacyEnum: { ...string, enum: ['opt1', 'opt2', 'opt3'], enumNames: ['Option One', 'Option Two', 'Option Three'] },
  untitledMulti: { type: 'array', items: options },
  titledMulti: { type: 'array', items: { anyOf: titled } },
});

const plain = {
  test_simple_text: [{}, () => text('This is a simple text response for testing.')],
  test_image_content: [{}, () => ({ content: [image] })],
  test_audio_content: [{}, () => ({ content: [{ type: 'audio', data: WAV, mimeType: 'audio/wav' }] })],
  test_embedded_resource: [
    {},
    () => ({ content: [resource('test://embedded-resource', 'text/plain', 'This is an embedded resource content.')] }),
  ],
  test_multiple_content_types: [
    {},
    () => ({
      content: [
        { type: 'text', text: 'Multiple content types test:' },
        image,
        resource('test://mixed-content-resource', 'application/json', '{"test":"data","value":123}'),
      ],
    }),
  ],
  test_error_handling: [{}, () => ({ isError: true, ...text('This tool intentionally returns an error for testing') })],
  test_tool_with_progress: [
    {},
    async (_, ctx) => {
      const progressToken = ctx.mcpReq._meta?.progressToken;
      for (const progress of [0, 50, 100]) {
        const params = { progressToken, progress, total: 100 };
        if (progressToken !== undefined) await ctx.mcpReq.notify({ method: 'notifications/progress', params });
        await pause();
      }
      return text('progressed');
    },
  ],
  json_schema_2020_12_tool: [null, (args) => text(JSON.stringify(args))],
  test_x_mcp_header: [
    { region: { ...string, 'x-mcp-header': 'Region' }, level: { type: 'integer' } },
    (args) => text(`region=${args.region ?? '<none>'}`),
  ],
};

const legacy = {
  test_tool_with_logging: [
    {},
    async (_, ctx) => {
      for (const data of ['Tool execution started', 'Tool processing data', 'Tool execution completed']) {
        await ctx.mcpReq.notify({ method: 'notifications/message', params: { level: 'info', data } });
        await pause();
      }
      return text('logged');
    },
  ],
  test_sampling: [
    { prompt: string },
    (args, ctx) => {
      const messages = [{ role: 'user', content: { type: 'text', text: args.prompt } }];
      const question = inputRequired.createMessage({ messages, maxTokens: 100 });
      return asking(ctx, question, ({ content }) => `LLM response: ${content?.text ?? ''}`);
    },
    ['prompt'],
  ],
  test_elicitation: [
    { message: string },
    (args, ctx) => {
      const form = object(
        {
          username: { ...string, description: "User's response" },
          email: { ...string, description: "User's email address" },
        },
        ['username', 'email'],
      );
      return elicit(ctx, 'User response', args.message, form);
    },
    ['message'],
  ],
  test_elicitation_sep1034_defaults: [
    {},
    (_, ctx) => elicit(ctx, 'Elicitation completed', 'defaults', DEFAULTS),
  ],
  test_elicitation_sep1330_enums: [
    {},
    (_, ctx) => elicit(ctx, 'Elicitation completed', 'enums', ENUMS),
  ],
};

const stateless = {
  test_missing_capability: [{}, (_, ctx) => (response(ctx, 'llm') ? text('ok') : ask({ llm: capitalQuestion() }))],
  test_streaming_elicitation: [{}, () => text('no independent requests on this stream')],
  test_logging_tool: [
    {},
    async (_, ctx) => {
      await ctx.mcpReq.log('info', 'only when _meta has a logLevel');
      return text('done');
    },
  ],
  test_input_required_result_elicitation: [
    {},
    (_, ctx) => {
      const name = field(ctx, 'user_name', 'name');
      return name === undefined ? ask({ user_name: nameForm() }) : text(`Hello, ${name}!`);
    },
  ],
  test_input_required_result_sampling: [
    {},
    (_, ctx) => {
      const said = response(ctx, 'capital_question');
      return said ? text(`Answer: ${said.content?.text ?? ''}`) : ask({ capital_question: capitalQuestion() });
    },
  ],
  test_input_required_result_list_roots: [
    {},
    (_, ctx) => {
      const roots = response(ctx, 'client_roots')?.roots;
      return roots ? text(`roots: ${roots.length}`) : ask({ client_roots: inputRequired.listRoots() });
    },
  ],
  test_input_required_result_request_state: [
    {},
    (_, ctx) => confirmed(ctx, () => (ctx.mcpReq.requestState() ? 'state-ok' : 'state-missing')),
  ],
  test_input_required_result_tampered_state: [{}, (_, ctx) => confirmed(ctx, () => 'state-ok')],
  test_input_required_result_multiple_inputs: [
    {},
    async (_, ctx) => {
      const name = field(ctx, 'user_name', 'name');
      const [greeting, roots] = [response(ctx, 'greeting'), response(ctx, 'client_roots')];
      if (name !== undefined && greeting && roots) {
        return text(`${name}: ${greeting.content?.text}; ${roots.roots?.length} roots`);
      }
      const questions = {
        user_name: nameForm(),
        greeting: capitalQuestion(),
        client_roots: inputRequired.listRoots(),
      };
      return ask(questions, await stateCodec.mint({ step: 1 }));
    },
  ],
  test_input_required_result_multi_round: [
    {},
    async (_, ctx) => {
      const state = ctx.mcpReq.requestState();
      const [name, color] = [field(ctx, 'step1', 'name'), field(ctx, 'step2', 'color')];
      if (state?.round === 2 && color !== undefined) return text(`${state.name} likes ${color}`);
      if (state?.round === 1 && name !== undefined) {
        return ask({ step2: formOf('step2', 'color') }, await stateCodec.mint({ round: 2, name }));
      }
      return ask({ step1: formOf('step1', 'name') }, await stateCodec.mint({ round: 1 }));
    },
  ],
  test_input_required_result_capabilities: [
    {},
    (_, ctx) => {
      if (ctx.mcpReq.inputResponses !== undefined) return text('ok');
      const declared = ctx.mcpReq.envelope?.[CLIENT_CAPABILITIES_META_KEY] ?? {};
      const questions = {};
      if (declared.elicitation) questions.user_name = nameForm();
      if (declared.sampling) questions.greeting = capitalQuestion();
      if (declared.roots) questions.client_roots = inputRequired.listRoots();
      return Object.keys(questions).length ? ask(questions) : text('nothing to ask');
    },
  ],
};

const SCHEMA_2020_12 = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  $defs: { address: { $anchor: 'addressDef', type: 'object', properties: { street: string, city: string } } },
  properties: {
    name: string,
    address: { $ref: '#/$defs/address' },
    contactMethod: { ...string, enum: ['phone', 'email'] },
    phone: string,
    email: string,
  },
  allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
  if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
  then: { required: ['phone'] },
  else: { required: ['email'] },
  additionalProperties: false,
};

/**
 * The list of tools and the way to call one.
 *
 * `host` says what a tool does to its server: `toolsChanged()` and `promptsChanged()` tell all who listen,
 * `closeStream(ctx)` breaks the stream that the call is answered on, where there is one.
 */
export function makeTools(host) {
  let extra = false;
  const effects = {
    test_trigger_tool_change: [
      {},
      () => {
        extra = !extra; // a real change: a list that only claims to have changed is no news
        host.toolsChanged();
        return text('published');
      },
    ],
    test_trigger_prompt_change: [
      {},
      () => {
        host.promptsChanged();
        return text('published');
      },
    ],
    test_reconnection: [
      {},
      async (_, ctx) => {
        await pause();
        host.closeStream(ctx);
        await pause();
        return text('Reconnection test completed successfully.');
      },
    ],
  };
  const tools = { ...plain, ...legacy, ...stateless, ...effects };
  const listed = Object.entries(tools).map(([name, [properties, , required]]) => ({
    name,
    description: `Conformance tool ${name}`,
    inputSchema: properties === null ? SCHEMA_2020_12 : object(properties, required),
  }));
  const sometimes = { name: 'test_sometimes', description: 'Comes and goes', inputSchema: object() };

  return {
    list: () => (extra ? [...listed, sometimes] : listed),
    async call(name, args, ctx) {
      const tool = tools[name];
      if (!tool) throw new ProtocolError(-32602, `Unknown tool: ${name}`);
      try {
        return await tool[1](args, ctx);
      } catch (error) {
        if (error instanceof ProtocolError) throw error;
        return { isError: true, ...text(String(error?.message ?? error)) };
      }
    },
  };
}
