import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { defineConfig } from "vite";

const packed = /\.(html|js|css|svg)$/;

/** Writes each text file once more as .br and .gz, so that the server need not compress. */
function compressed() {
  const walk = (folder: string): string[] =>
    readdirSync(folder).flatMap((name) => {
      const path = join(folder, name);
      return statSync(path).isDirectory() ? walk(path) : [path];
    });
  return {
    name: "compressed",
    closeBundle() {
      for (const path of walk(join(import.meta.dirname, "dist")).filter((path) => packed.test(path))) {
        const bytes = readFileSync(path);
        const params = { [constants.BROTLI_PARAM_QUALITY]: 11 };
        writeFileSync(`${path}.br`, brotliCompressSync(bytes, { params }));
        writeFileSync(`${path}.gz`, gzipSync(bytes, { level: 9 }));
      }
    },
  };
}

export default defineConfig({
  plugins: [compressed()],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    target: "es2022",
    // Nothing may be inlined: the policy of the page allows files of our own only.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: {
    // `npm run dev` beside a running server: open its link once, so that the cookie is there.
    proxy: Object.fromEntries(
      ["/agent", "/admin", "/metrics", "/readyz", "/sign-in"].map((path) => [
        path,
        { target: process.env.GREENROOM_URL ?? "http://127.0.0.1:7878", ws: true, changeOrigin: true },
      ]),
    ),
  },
});
