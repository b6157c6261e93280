/**
 * The sign-in page. It replaces the page content while the user is signed out; the URL fragment
 * stays.
 */

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { type Problem, toProblem } from "../api/http";
import { currentUser, signIn } from "../state/app_state";
import { Button } from "./ui";

/**
 * True if the URL contains a token, which the server rejected. The token is removed from the URL.
 */
const hasRejectedToken = new URLSearchParams(location.search).has("token");
if (hasRejectedToken) history.replaceState(null, "", location.pathname + location.hash);

/** The form to sign in with a token or an API key. */
export function SignIn() {
  const [token, setToken] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const field = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => field.current?.focus(), []);
  const submit = async () => {
    if (!token.trim() || busy) return;
    setBusy(true);
    setProblem(null);
    try {
      await signIn(token.trim());
    } catch (error) {
      setProblem(toProblem(error));
      setBusy(false);
      field.current?.select();
    }
  };
  return (
    <main class="standalone">
      <form class="sign-in" onSubmit={(event) => { event.preventDefault(); void submit(); }}>
        <span class="brand-mark big" aria-hidden="true" />
        <h1>Greenroom</h1>
        <p>{currentUser.get() ? "You have been signed out." : "You are not signed in."} Open the link that the server printed at startup, or enter a token or an API key.</p>
        {hasRejectedToken && !problem && <p class="error-text" role="alert">The token in this link is not valid.</p>}
        <label class="stacked-field">Token or API key
          <input ref={field} type="password" autocomplete="off" value={token} aria-invalid={problem?.isSignedOut || undefined}
            onInput={(event) => setToken(event.currentTarget.value)} />
        </label>
        {problem && <p class="error-text" role="alert">{problem.isSignedOut ? "Invalid token or API key." : problem.message}</p>}
        <Button tone="primary" type="submit" busy={busy} disabled={!token.trim()}>Sign in</Button>
        <p class="hint">The sign-in is valid for 12 hours.</p>
      </form>
    </main>
  );
}
