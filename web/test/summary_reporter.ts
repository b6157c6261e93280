/**
 * Prints a summary in the format of cargo's test runner, so that one script can add up all tests.
 */

import type { Reporter, TestModule } from "vitest/node";

export default class SummaryReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const states = modules.flatMap((module) => [...module.children.allTests()].map((test) => test.result().state));
    const count = (state: string) => states.filter((testState) => testState === state).length;
    const broken = modules.filter((module) => module.state() === "failed" && ![...module.children.allTests()].length).length;
    const failed = count("failed") + broken;
    console.log(`test result: ${failed ? "FAILED" : "ok"}. ${count("passed")} passed; ${failed} failed; ${count("skipped")} ignored`);
  }
}
