import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { defineConfig } from "vite";

const COMPRESSIBLE = /\.(html|js|css|svg)$/;

/**
 * Writes a .br and a .gz copy of each text file, so that the server does not compress at runtime.
 */
function precompress() {
  const listFiles = (folder: string): string[] =>
    readdirSync(folder).flatMap((name) => {
      const path = join(folder, name);
      return statSync(path).isDirectory() ? listFiles(path) : [path];
    });
  return {
    name: "precompress",
    closeBundle() {
      for (const path of listFiles(join(import.meta.dirname, "dist")).filter((path) => COMPRESSIBLE.test(path))) {
        const bytes = readFileSync(path);
        const params = { [constants.BROTLI_PARAM_QUALITY]: 11 };
        writeFileSync(`${path}.br`, brotliCompressSync(bytes, { params }));
        writeFileSync(`${path}.gz`, gzipSync(bytes, { level: 9 }));
      }
    },
  };
}

export default defineConfig({
  plugins: [precompress()],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    target: "es2022",
    // No inlining: the content security policy allows only files of the server.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: {
    // For `npm run dev` next to a running server. Open the server's sign-in link once to set the
    // cookie.
    proxy: Object.fromEntries(
      ["/agent", "/admin", "/metrics", "/readyz", "/sign-in"].map((path) => [
        path,
        { target: process.env.GREENROOM_URL ?? "http://127.0.0.1:7878", ws: true, changeOrigin: true },
      ]),
    ),
  },
});
