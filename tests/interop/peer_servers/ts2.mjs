// A server on the TypeScript SDK, 2.x, that offers what tests/interop/server.py does.
// What it asks it returns as `inputRequired`, the one way of that SDK that works in both eras.
import { createServer } from 'node:http';
import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';

const require = createRequire(`${process.env.INTEROP_MODULES}/anywhere.js`);
const { McpServer, ResourceTemplate, completable, createMcpHandler, inputRequired, isLegacyRequest } = require('@modelcontextprotocol/server');
const { serveStdio } = require('@modelcontextprotocol/server/stdio');
const { NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest } = require('@modelcontextprotocol/node');
const { SSEServerTransport } = require('@modelcontextprotocol/server-legacy/sse');
const { z } = require('zod');

const [transport = 'stdio', port] = process.argv.slice(2);
const text = said => ({ content: [{ type: 'text', text: said }] });
const pause = seconds => new Promise(done => setTimeout(done, seconds * 1000));
const grown = [];
let modern;

function build() {
    const capabilities = { logging: {}, tools: { listChanged: true } };
    const server = new McpServer({ name: 'interop', version: '1.0.0' }, { instructions: 'Try it all.', capabilities });
    const add = async ({ a, b }) => text(String(a + b));
    const numbers = z.object({ a: z.number(), b: z.number() });
    server.registerTool('add', { title: 'Add', description: 'Add two numbers.', inputSchema: numbers }, add);
    server.registerTool('echo', { inputSchema: z.object({ text: z.string() }) }, async given => text(given.text));
    const point = z.object({ x: z.number(), y: z.number() });
    server.registerTool('point', { inputSchema: point, outputSchema: point }, async at => ({ ...text(JSON.stringify(at)), structuredContent: at }));
    server.registerTool('fail', {}, async () => { throw new Error('as it is'); });
    server.registerTool('steps', { inputSchema: z.object({ count: z.number(), pause: z.number() }) }, async (given, ctx) => {
        for (let progress = 1; progress <= given.count; progress++) {
            const params = { progressToken: ctx.mcpReq._meta?.progressToken, progress, total: given.count, message: `step ${progress}` };
            if (params.progressToken !== undefined) await ctx.mcpReq.notify({ method: 'notifications/progress', params });
            await pause(given.pause);
        }
        return text('done');
    });
    server.registerTool('talk', {}, async ctx => {
        await ctx.mcpReq.log('info', 'one');
        await ctx.mcpReq.log('warning', 'two');
        return text('said');
    });
    const asks = (name, request, answered) => server.registerTool(name, {}, async ctx => {
        const answer = ctx.mcpReq.inputResponses?.[name];
        return answer ? text(answered(answer)) : inputRequired({ inputRequests: { [name]: request } });
    });
    const requestedSchema = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };
    asks('ask_name', inputRequired.elicit({ message: 'Who are you?', requestedSchema }), answer => `${answer.action} ${answer.content.name}`);
    const messages = [{ role: 'user', content: { type: 'text', text: 'Say something' } }];
    asks('ask_model', inputRequired.createMessage({ messages, maxTokens: 20 }), answer => answer.content.text);
    asks('ask_roots', inputRequired.listRoots(), answer => answer.roots.map(root => root.uri).join(' '));
    server.registerTool('grow', { inputSchema: z.object({ name: z.string() }) }, async ({ name }) => {
        grown.push(name);
        server.registerTool(name, { inputSchema: numbers }, add);
        modern?.notify.toolsChanged();
        return text(name);
    });
    for (const name of grown) server.registerTool(name, { inputSchema: numbers }, add);
    server.registerResource('text', 'doc://text', { mimeType: 'text/plain' }, async () => ({ contents: [{ uri: 'doc://text', text: 'hello' }] }));
    server.registerResource('data', 'doc://bytes', {}, async () => ({ contents: [{ uri: 'doc://bytes', blob: 'AP8=' }] }));
    const template = new ResourceTemplate('item://{number}/name', { list: undefined });
    server.registerResource('item', template, {}, async (uri, { number }) => ({ contents: [{ uri: uri.href, text: `item ${number}` }] }));
    const names = value => ['Ada', 'Alan', 'Barbara'].filter(name => name.startsWith(value));
    server.registerPrompt('greet', { argsSchema: z.object({ name: completable(z.string(), names) }) }, ({ name }) => (
        { messages: [{ role: 'user', content: { type: 'text', text: `Hello ${name}!` } }] }));
    server.registerPrompt('talk_about', { argsSchema: z.object({ topic: z.string() }) }, ({ topic }) => ({ messages: [
        { role: 'user', content: { type: 'text', text: `What of ${topic}?` } }, { role: 'assistant', content: { type: 'text', text: 'A lot.' } }] }));
    return server;
}

const body = async request => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    return chunks.length ? JSON.parse(Buffer.concat(chunks)) : undefined;
};
const open = new Map();

async function http(request, response) {
    const known = open.get(request.headers['mcp-session-id']);
    const given = request.method === 'POST' ? await body(request) : undefined;
    if (known) return known.handleRequest(request, response, given);
    if (!(await isLegacyRequest(await toWebRequest(request, given), given))) return toNodeHandler(modern)(request, response, given);
    if (request.method !== 'POST') return response.writeHead(405).end();
    const session = new NodeStreamableHTTPServerTransport({ sessionIdGenerator: randomUUID, onsessioninitialized: id => open.set(id, session) });
    await build().connect(session);
    return session.handleRequest(request, response, given);
}

async function sse(request, response) {
    const at = new URL(request.url, 'http://localhost');
    if (request.method === 'POST' && at.pathname === '/message') return open.get(at.searchParams.get('sessionId')).handlePostMessage(request, response);
    if (request.method !== 'GET' || at.pathname !== '/sse') return response.writeHead(405).end();
    const session = new SSEServerTransport('/message', response);
    open.set(session.sessionId, session);
    return build().connect(session);
}

if (transport === 'stdio') serveStdio(build);
else {
    modern = createMcpHandler(build, { legacy: 'reject' });
    createServer(transport === 'sse' ? sse : http).listen(Number(port), '127.0.0.1');
}
