import { render } from "preact";
import { App } from "./app";
import { startApp } from "./state/app_state";
import "./styles/index.css";

render(<App />, document.getElementById("app")!);
void startApp();
