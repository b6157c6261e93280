/**
 * What a model says, as markdown. While it grows, only its last block is made anew, so that nothing
 * flickers. Nothing of it becomes a page's own markup but through the sanitiser; HTML in it is shown
 * as the text it is.
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
    // A picture would be fetched from somewhere, and tell that it was.
    image: ({ text, href }) => escapeHtml(text || href),
    // A mark to read; there is nothing to tick.
    checkbox: ({ checked }) => `<span role="img" aria-label="${checked ? "done" : "to do"}"></span> `,
    // A heading without text is none.
    tablecell: (cell) => (cell.header && !cell.text.trim() ? "<td></td>" : false),
  },
});

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  // A wide table scrolls, and so must be reachable.
  if (node.nodeName === "TABLE") node.setAttribute("tabindex", "0");
  if (node.nodeName !== "A") return;
  if (SAFE_LINK.test(node.getAttribute("href") ?? "")) {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer");
  } else node.removeAttribute("href");
});

function renderSanitized(token: Token): string {
  const html = marked.parser([token]);
  // A TrustedHTML where the browser has such; Preact hands it on as it is.
  return DOMPurify.sanitize(html, {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ["href", "title", "start", "align", "role", "aria-label"],
    ALLOW_DATA_ATTR: false,
    RETURN_TRUSTED_TYPE: true,
  }) as unknown as string;
}

/** `links` are the addresses that the whole text defines, which any block may refer to. */
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
