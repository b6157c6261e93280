/** What the page has heard. */ //~ comment
export interface Found { //~ type
  whoAsked: string; //~ word
}

export type Told = { text: string }; //~ type word

/** //~ comment comment
 * Whether somebody is needed.
 */
export function tell(): void {} //~ function word

const hear = (event: Event) => event.type; //~ function word

export function Page({ heard }: { heard: string }) { //~ word
  const title = "Approvals that nobody answered"; //~ text
  const label = `${heard} people`; //~ text
  return <p title={title}>A person must approve {label}</p>; //~ text
}

export const groups = { people: 1, openQuestions: 2 }; //~ text word

const seeTo = async function () {}; //~ function

class Feed {
  take() {} //~ function
  async put(text: string): Promise<void> {} //~ function
}

export const actions = { keep() {}, letGo: () => {} }; //~ function
