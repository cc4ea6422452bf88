// Reads AsyncAPI documents from standard input, a JSON array; writes problems and channels of each.
import { readFileSync } from "node:fs";
import { Parser } from "@asyncapi/parser";

const answers = [];
for (const source of JSON.parse(readFileSync(0, "utf8"))) {
  const { document, diagnostics } = await new Parser().parse(source);
  const problems = diagnostics
    .filter((one) => one.severity < 2)
    .map((one) => `${one.path.join(".")}: ${one.message}`);
  const channels = document ? document.channels().all().map((one) => one.id()) : [];
  answers.push({ problems, channels });
}
console.log(JSON.stringify(answers));
