// The client of the TypeScript SDK, 2.x.
import { main, require, ROOT } from './script.mjs';

const { Client, LOG_LEVEL_META_KEY, StreamableHTTPClientTransport, SSEClientTransport } = require('@modelcontextprotocol/client');
const { StdioClientTransport } = require('@modelcontextprotocol/client/stdio');

const transports = {
    stdio: at => new StdioClientTransport({ command: at.target[0], args: at.target.slice(1), env: at.env, stderr: 'ignore' }),
    http: at => new StreamableHTTPClientTransport(new URL(at.target)),
    sse: at => new SSEClientTransport(new URL(at.target)),
};

async function opened(at, heard) {
    const modern = at.revision >= '2026';
    const client = new Client({ name: 'ts2', version: '1' }, {
        capabilities: { elicitation: {}, sampling: {}, roots: {} },
        versionNegotiation: { mode: modern ? { pin: at.revision } : 'auto' },
    });
    client.setRequestHandler('elicitation/create', async () => ({ action: 'accept', content: { name: 'Ada' } }));
    client.setRequestHandler('sampling/createMessage', async () => (
        { role: 'assistant', model: 'interop', content: { type: 'text', text: 'Godspeed!' } }));
    client.setRequestHandler('roots/list', async () => ({ roots: [{ uri: ROOT }] }));
    client.setNotificationHandler('notifications/message', one => { heard.logs.push(one.params); });
    client.setNotificationHandler('notifications/tools/list_changed', () => { heard.changes.push('tools'); });
    client.setNotificationHandler('notifications/resources/updated', one => { heard.changes.push(one.params.uri); });
    await client.connect(transports[at.transport](at));

    const call = async step => {
        if (step.level && !modern) await client.setLoggingLevel(step.level);
        const _meta = step.level && modern ? { [LOG_LEVEL_META_KEY]: step.level } : undefined;
        const onprogress = one => heard.progress.push(one);
        return client.callTool({ name: step.tool, arguments: step.arguments, _meta }, { onprogress });
    };
    const listen = async (step, wanted) => {
        const subscription = await client.listen(wanted);
        try {
            const result = await call(step);
            for (let i = 0; i < 200 && !heard.changes.length; i++) await new Promise(done => setTimeout(done, 10));
            return result;
        } finally {
            await subscription.close();
        }
    };
    const change = step => (modern ? listen(step, { toolsListChanged: true }) : call(step));
    const subscribe = async step => {
        if (modern) return listen(step, { resourceSubscriptions: [step.uri] });
        await client.subscribeResource({ uri: step.uri });
        return call(step);
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
            change,
            subscribe,
            resources: () => client.listResources(),
            templates: () => client.listResourceTemplates(),
            read: step => client.readResource({ uri: step.uri }),
            prompts: () => client.listPrompts(),
            prompt: step => client.getPrompt({ name: step.prompt, arguments: step.arguments }),
            complete: step => client.complete(
                { ref: { type: 'ref/prompt', name: step.prompt }, argument: { name: step.argument, value: step.value } }),
            ping: () => client.ping(),
        },
    };
}

await main(opened);
