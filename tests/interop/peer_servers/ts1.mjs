// A server on the TypeScript SDK, 1.x, that offers what tests/interop/server.py does.
import { createServer } from 'node:http';
import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';

const require = createRequire(`${process.env.INTEROP_MODULES}/anywhere.js`);
const { McpServer, ResourceTemplate } = require('@modelcontextprotocol/sdk/server/mcp.js');
const { completable } = require('@modelcontextprotocol/sdk/server/completable.js');
const { StdioServerTransport } = require('@modelcontextprotocol/sdk/server/stdio.js');
const { StreamableHTTPServerTransport } = require('@modelcontextprotocol/sdk/server/streamableHttp.js');
const { SSEServerTransport } = require('@modelcontextprotocol/sdk/server/sse.js');
const { z } = require('zod');

const [transport = 'stdio', port] = process.argv.slice(2);
const text = said => ({ content: [{ type: 'text', text: said }] });
const pause = seconds => new Promise(done => setTimeout(done, seconds * 1000));

function build() {
    const server = new McpServer({ name: 'interop', version: '1.0.0' }, { instructions: 'Try it all.', capabilities: { logging: {} } });
    const add = async ({ a, b }) => text(String(a + b));
    const numbers = { a: z.number(), b: z.number() };
    server.registerTool('add', { title: 'Add', description: 'Add two numbers.', inputSchema: numbers }, add);
    server.registerTool('echo', { inputSchema: { text: z.string() } }, async given => text(given.text));
    const point = { x: z.number(), y: z.number() };
    server.registerTool('point', { inputSchema: point, outputSchema: point }, async at => ({ ...text(JSON.stringify(at)), structuredContent: at }));
    server.registerTool('fail', {}, async () => { throw new Error('as it is'); });
    server.registerTool('steps', { inputSchema: { count: z.number(), pause: z.number() } }, async (given, extra) => {
        for (let progress = 1; progress <= given.count; progress++) {
            const params = { progressToken: extra._meta?.progressToken, progress, total: given.count, message: `step ${progress}` };
            if (params.progressToken !== undefined) await extra.sendNotification({ method: 'notifications/progress', params });
            await pause(given.pause);
        }
        return text('done');
    });
    server.registerTool('talk', {}, async extra => {
        for (const [level, data] of [['info', 'one'], ['warning', 'two']])
            await extra.sendNotification({ method: 'notifications/message', params: { level, data } });
        return text('said');
    });
    server.registerTool('ask_name', {}, async () => {
        const requestedSchema = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };
        const answer = await server.server.elicitInput({ message: 'Who are you?', requestedSchema });
        return text(`${answer.action} ${answer.content?.name ?? ''}`.trim());
    });
    server.registerTool('ask_model', {}, async () => {
        const messages = [{ role: 'user', content: { type: 'text', text: 'Say something' } }];
        return text((await server.server.createMessage({ messages, maxTokens: 20 })).content.text);
    });
    server.registerTool('ask_roots', {}, async () => text((await server.server.listRoots()).roots.map(root => root.uri).join(' ')));
    server.registerTool('grow', { inputSchema: { name: z.string() } }, async ({ name }) => {
        server.registerTool(name, { inputSchema: numbers }, add);
        return text(name);
    });
    server.registerResource('text', 'doc://text', { mimeType: 'text/plain' }, async () => ({ contents: [{ uri: 'doc://text', text: 'hello' }] }));
    server.registerResource('data', 'doc://bytes', {}, async () => ({ contents: [{ uri: 'doc://bytes', blob: 'AP8=' }] }));
    const template = new ResourceTemplate('item://{number}/name', { list: undefined });
    server.registerResource('item', template, {}, async (uri, { number }) => ({ contents: [{ uri: uri.href, text: `item ${number}` }] }));
    const names = value => ['Ada', 'Alan', 'Barbara'].filter(name => name.startsWith(value));
    server.registerPrompt('greet', { argsSchema: { name: completable(z.string(), names) } }, ({ name }) => (
        { messages: [{ role: 'user', content: { type: 'text', text: `Hello ${name}!` } }] }));
    server.registerPrompt('talk_about', { argsSchema: { topic: z.string() } }, ({ topic }) => ({ messages: [
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
    if (known) return known.handleRequest(request, response, request.method === 'POST' ? await body(request) : undefined);
    if (request.method !== 'POST') return response.writeHead(405).end();
    const session = new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID, onsessioninitialized: id => open.set(id, session) });
    await build().connect(session);
    return session.handleRequest(request, response, await body(request));
}

async function sse(request, response) {
    const at = new URL(request.url, 'http://localhost');
    if (request.method === 'POST' && at.pathname === '/message') return open.get(at.searchParams.get('sessionId')).handlePostMessage(request, response);
    if (request.method !== 'GET' || at.pathname !== '/sse') return response.writeHead(405).end();
    const session = new SSEServerTransport('/message', response);
    open.set(session.sessionId, session);
    return build().connect(session);
}

if (transport === 'stdio') await build().connect(new StdioServerTransport());
else createServer(transport === 'sse' ? sse : http).listen(Number(port), '127.0.0.1');
