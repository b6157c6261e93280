/** What stands here for whoever has not opened the link. */

import { useState } from "preact/hooks";
import { Button } from "./ui";

export function SignedOut() {
  const [token, setToken] = useState("");
  return (
    <main class="alone">
      <div class="sign-in">
        <span class="brand-mark big" aria-hidden="true" />
        <h1>Greenroom</h1>
        <p>This browser is not signed in. Open the link that the server printed when it started, or paste a token or an API key.</p>
        <label class="stacked-field">Token or API key
          <input type="password" autocomplete="off" value={token} onInput={(event) => setToken(event.currentTarget.value)}
            onKeyDown={(event) => event.key === "Enter" && token && open(token)} />
        </label>
        <Button tone="primary" disabled={!token.trim()} onClick={() => open(token)}>Sign in</Button>
        <p class="hint">The cookie it leaves lasts 12 hours.</p>
      </div>
    </main>
  );
}

function open(token: string) {
  location.replace(`/?token=${encodeURIComponent(token.trim())}`);
}
