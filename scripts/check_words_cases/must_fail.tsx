/** What the page has heard. */ //~ comment
export interface Found { //~ type
  whoAsked: string; //~ word
}

export type Told = { text: string }; //~ type word

/** //~ comment
 * Whether somebody is needed.
 */
export function tell(): void {} //~ function word

const hear = (event: Event) => event.type; //~ function word

export function Page({ heard }: { heard: string }) { //~ word
  return <p>{heard}</p>;
}
