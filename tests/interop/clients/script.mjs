// What the scripts for TypeScript's clients have in common; script.py says how it works.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';

export const ROOT = 'file:///tmp/interop';
const STEP_MS = 8000, CASE_MS = 30000, LATE_MS = 3000;

// Packages are not beside this file: the runner says where they are.
export const require = createRequire(`${process.env.INTEROP_MODULES}/anywhere.js`);

const within = (ms, what, work) => {
    let timer;
    const late = new Promise((_, refuse) => { timer = setTimeout(() => refuse(new Error(`${what} took too long`)), ms); });
    return Promise.race([work, late]).finally(() => clearTimeout(timer));
};
const pause = ms => new Promise(done => setTimeout(done, ms));
const say = (at, step, got) => process.stdout.write(JSON.stringify({ case: at.id, step, got }) + '\n');
const told = problem => ({ code: problem?.code, message: String(problem?.message ?? problem).replaceAll('\n', ' ').slice(0, 300) });

async function all(at, opened) {
    const heard = { progress: [], logs: [], changes: [] };
    const { verbs, close } = await opened(at, heard);
    try {
        for (const step of at.steps) {
            Object.assign(heard, { progress: [], logs: [], changes: [] });
            let got;
            try {
                got = { result: await within(STEP_MS, step.name, verbs[step.do](step)) };
            } catch (problem) {
                got = { error: told(problem) };
            }
            const until = Date.now() + LATE_MS;
            while (Object.entries(step.awaits).some(([kind, count]) => heard[kind].length < count) && Date.now() < until) await pause(10);
            say(at, step.name, { ...got, ...heard });
        }
    } finally {
        await within(STEP_MS, 'close', close()).catch(() => {});
    }
}

export async function main(opened) {
    for (const at of JSON.parse(readFileSync(0, 'utf8'))) {
        try {
            await within(CASE_MS, 'the case', all(at, opened));
        } catch (problem) {
            say(at, 'open', { error: told(problem) });
        }
    }
    process.exit(0);
}
