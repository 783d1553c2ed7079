// npm's `openai` package against the server at BASE_URL, whose model says what the user says.
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: "none", maxRetries: 0 });
const say = (content) => ({ model: "default", messages: [{ role: "user", content }] });

const whole = await client.chat.completions.create(say("Hi 山"));
assert.equal(whole.choices[0].message.content, "Hi 山");
assert.equal(whole.choices[0].finish_reason, "stop");
assert.equal(typeof whole.usage.prompt_tokens_details.cached_tokens, "number");

const stream = await client.chat.completions.create({
  ...say("Hi 🥨 水"),
  stream: true,
  stream_options: { include_usage: true },
});
let text = "";
let usage = null;
for await (const chunk of stream) {
  text += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
assert.equal(text, "Hi 🥨 水");
assert.ok(usage.completion_tokens > 0);

const runner = client.chat.completions.stream(say("Finished"));
assert.equal(await runner.finalContent(), "Finished");

const { data, response } = await client.chat.completions.create(say("done")).withResponse();
assert.equal(response.headers.get("x-request-id"), data.id);

const scored = await client.completions.create({
  model: "default", prompt: "ab", echo: true, logprobs: 1, max_tokens: 0,
});
assert.equal(scored.choices[0].logprobs.tokens.join(""), "ab");

await assert.rejects(client.chat.completions.create({ ...say("a"), model: "gpt-x" }), (error) =>
  error instanceof OpenAI.NotFoundError && error.code === "model_not_found");
await assert.rejects(client.chat.completions.create({ ...say("a"), top_p: 7 }), (error) =>
  error instanceof OpenAI.BadRequestError && error.param === "top_p");

const long = await client.chat.completions.create({ ...say("abcdefgh".repeat(80)), stream: true });
for await (const chunk of long) {
  if (chunk.choices[0].delta.content) break; // leaves, which aborts the request
}

const models = await client.models.list();
assert.equal((await client.models.retrieve(models.data[0].id)).id, models.data[0].id);
console.log("all right");
