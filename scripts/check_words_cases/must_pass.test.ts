/** Tests of a page. Their texts are not checked. */

test("x1 a list for people", () => expect(label("person")).toBe("nobody"));
