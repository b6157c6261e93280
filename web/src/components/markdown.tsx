/**
 * Renders the Markdown of a model's answer. While the text grows, only its last block is rendered
 * again, so that the page does not flicker. All markup passes the sanitiser; HTML in the text is shown
 * as text.
 */

import DOMPurify from "dompurify";
import { Marked, type Token } from "marked";
import { memo } from "preact/compat";
import { useMemo, useState } from "preact/hooks";
import { IconButton } from "./ui";

const TAGS = [
  "p", "br", "hr", "strong", "em", "del", "code", "pre", "blockquote", "ul", "ol", "li", "h1", "h2", "h3", "h4", "h5",
  "h6", "table", "thead", "tbody", "tr", "th", "td", "a", "span",
];
const SAFE_LINK = /^(https?:|mailto:)/i;

const escapeHtml = (text: string) =>
  text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");

const marked = new Marked({
  gfm: true,
  renderer: {
    html: ({ text }) => escapeHtml(text),
    // An image would be fetched from another server, which would disclose that the answer was read.
    image: ({ text, href }) => escapeHtml(text || href),
    // A read-only mark instead of an input.
    checkbox: ({ checked }) => `<span role="img" aria-label="${checked ? "done" : "to do"}"></span> `,
    // An empty header cell is not a header (accessibility rule).
    tablecell: (cell) => (cell.header && !cell.text.trim() ? "<td></td>" : false),
  },
});

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  // A wide table scrolls, so it must be focusable by keyboard.
  if (node.nodeName === "TABLE") node.setAttribute("tabindex", "0");
  if (node.nodeName !== "A") return;
  if (SAFE_LINK.test(node.getAttribute("href") ?? "")) {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer");
  } else node.removeAttribute("href");
});

function renderSanitized(token: Token): string {
  const html = marked.parser([token]);
  // A TrustedHTML in browsers that support it. Preact passes it on unchanged.
  return DOMPurify.sanitize(html, {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ["href", "title", "start", "align", "role", "aria-label"],
    ALLOW_DATA_ATTR: false,
    RETURN_TRUSTED_TYPE: true,
  }) as unknown as string;
}

/**
 * Renders one block. `links` are the link definitions of the whole text, which any block may use.
 */
const MarkdownBlock = memo(function MarkdownBlock({ token, links }: { token: Token; links: string }) {
  const html = useMemo(() => renderSanitized(token), [token.raw, links]);
  return <div class="markdown-block" dir="auto" dangerouslySetInnerHTML={{ __html: html }} />;
});

const CodeBlock = memo(function CodeBlock({ text, lang }: { text: string; lang: string }) {
  const [copied, setCopied] = useState(false);
  const copy = () => {
    void navigator.clipboard?.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <div class="code">
      <div class="code-head"><span>{lang || "text"}</span>
        <IconButton icon={copied ? "check" : "copy"} label={copied ? "Copied" : "Copy code"} onClick={copy} /></div>
      <pre tabIndex={0} dir="ltr"><code>{text}</code></pre>
    </div>
  );
});

/** Renders a Markdown text. `streaming` shows a cursor at its end. */
export const Markdown = memo(function Markdown({ text, streaming = false }: { text: string; streaming?: boolean }) {
  const { blocks, links } = useMemo(() => {
    const tokens = marked.lexer(text);
    return { blocks: tokens.filter(({ type }) => type !== "space" && type !== "def"), links: JSON.stringify(tokens.links) };
  }, [text]);
  return (
    <div class={`markdown${streaming ? " streaming" : ""}`}>
      {blocks.map((token, index) => token.type === "code"
        ? <CodeBlock key={index} text={String(token.text)} lang={String(token.lang ?? "")} />
        : <MarkdownBlock key={index} token={token} links={links} />)}
    </div>
  );
});
