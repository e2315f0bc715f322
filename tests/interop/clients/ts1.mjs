// The client of the TypeScript SDK, 1.x.
import { main, require, ROOT } from './script.mjs';

const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
const { SSEClientTransport } = require('@modelcontextprotocol/sdk/client/sse.js');
const types = require('@modelcontextprotocol/sdk/types.js');

const transports = {
    stdio: at => new StdioClientTransport({ command: at.target[0], args: at.target.slice(1), env: at.env, stderr: 'ignore' }),
    http: at => new StreamableHTTPClientTransport(new URL(at.target)),
    sse: at => new SSEClientTransport(new URL(at.target)),
};

async function opened(at, heard) {
    const capabilities = { elicitation: {}, sampling: {}, roots: {} };
    const client = new Client({ name: 'ts1', version: '1' }, { capabilities });
    client.setRequestHandler(types.ElicitRequestSchema, async () => ({ action: 'accept', content: { name: 'Ada' } }));
    client.setRequestHandler(types.CreateMessageRequestSchema, async () => (
        { role: 'assistant', model: 'interop', content: { type: 'text', text: 'Godspeed!' } }));
    client.setRequestHandler(types.ListRootsRequestSchema, async () => ({ roots: [{ uri: ROOT }] }));
    client.setNotificationHandler(types.LoggingMessageNotificationSchema, one => { heard.logs.push(one.params); });
    client.setNotificationHandler(types.ToolListChangedNotificationSchema, () => { heard.changes.push('tools'); });
    client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, one => { heard.changes.push(one.params.uri); });
    await client.connect(transports[at.transport](at));

    const call = async step => {
        if (step.level) await client.setLoggingLevel(step.level);
        const onprogress = one => heard.progress.push(one);
        return client.callTool({ name: step.tool, arguments: step.arguments }, undefined, { onprogress });
    };
    const many = async step => {
        const calls = Array.from({ length: step.count }, (_, n) => call({ tool: step.tool, arguments: { a: n, b: 0 } }));
        return { texts: (await Promise.all(calls)).map(result => result.content[0].text) };
    };
    return {
        close: () => client.close(),
        verbs: {
            server: async () => client.getServerVersion(),
            tools: () => client.listTools(),
            call,
            many,
            change: call,
            resources: () => client.listResources(),
            templates: () => client.listResourceTemplates(),
            read: step => client.readResource({ uri: step.uri }),
            prompts: () => client.listPrompts(),
            prompt: step => client.getPrompt({ name: step.prompt, arguments: step.arguments }),
            complete: step => client.complete(
                { ref: { type: 'ref/prompt', name: step.prompt }, argument: { name: step.argument, value: step.value } }),
            subscribe: async step => {
                await client.subscribeResource({ uri: step.uri });
                return call(step);
            },
            ping: () => client.ping(),
        },
    };
}

await main(opened);
