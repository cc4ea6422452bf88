// Reads messages, a base64 text a line, and prints what two parsers make of each, a JSON object a line.
import { createInterface } from "node:readline";
import { simpleParser } from "mailparser";
import PostalMime from "postal-mime";

const boxes = (list) => (list ?? []).map(({ name, address }) => ({ name: name ?? "", address }));
const files = (list) => list.map(({ filename, content }) => ({
  filename,
  content: Buffer.from(content).toString("base64"),
}));

async function byMailparser(raw) {
  const mail = await simpleParser(raw);
  return {
    from: boxes(mail.from?.value),
    to: boxes(mail.to?.value),
    cc: boxes(mail.cc?.value),
    reply_to: boxes(mail.replyTo?.value),
    subject: mail.subject,
    text: mail.text ?? "",
    html: mail.html || "",
    files: files(mail.attachments),
  };
}

async function byPostalMime(raw) {
  const mail = await PostalMime.parse(raw);
  return {
    from: boxes([mail.from]),
    to: boxes(mail.to),
    cc: boxes(mail.cc),
    reply_to: boxes(mail.replyTo),
    subject: mail.subject,
    text: mail.text ?? "",
    html: mail.html ?? "",
    files: files(mail.attachments),
  };
}

for await (const line of createInterface({ input: process.stdin })) {
  const raw = Buffer.from(line, "base64");
  const found = { mailparser: await byMailparser(raw), "postal-mime": await byPostalMime(raw) };
  process.stdout.write(`${JSON.stringify(found)}\n`);
}
