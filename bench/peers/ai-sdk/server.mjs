// The AI SDK peer: its agent loop behind Node's HTTP server. Conversations are kept in memory, as in the
// SDK's documentation; nothing is stored. `POST /chat {session, model, message}`.

import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { isStepCount, streamText, tool } from 'ai';
import { z } from 'zod';

const [port, baseURL] = process.argv.slice(2);
const provider = createOpenAICompatible({ name: 'bench', baseURL, apiKey: 'bench' });
const conversations = new Map();

const tools = {
  read_skill: tool({
    description: 'Reads a skill.',
    inputSchema: z.object({ name: z.string() }),
    execute: async () => 'Tritanium sells for 4.12 ISK a unit in Jita.',
  }),
};

createServer(async (request, response) => {
  const { session, model, message } = JSON.parse(await text(request));
  const messages = conversations.get(session) ?? [];
  messages.push({ role: 'user', content: message });
  const result = streamText({
    model: provider(model),
    messages,
    tools,
    stopWhen: isStepCount(5),
    onFinish: ({ responseMessages }) => {
      conversations.set(session, [...messages, ...responseMessages]);
    },
  });
  result.pipeUIMessageStreamToResponse(response);
}).listen(Number(port), '127.0.0.1');
