/** A page that lists approvals. What it shows is decided by the server. */
export interface ApprovalList {
  owner: string;
}

/** Returns the label of an approval. */
export function approvalLabel({ owner }: ApprovalList): string {
  const template = `function told() { ${owner} }`; // What follows is text.
  const unanswered = "Personal peoples"; // What a user reads is no comment of an item.
  const pattern = /function hear|"const said = () => 1"/;
  return pattern.test(template + unanswered) ? "const said = () => 1" : 'interface Found';
}

export function Page(list: ApprovalList) {
  return <p title="whose told">Approvals, unheard of: {approvalLabel(list)}</p>;
}
