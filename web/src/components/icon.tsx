/** The icons, as SVG paths in a 24 × 24 view box. */

const PATHS = {
  chat: "M21 12a8 8 0 0 1-8 8H4l2-3.2A8 8 0 1 1 21 12Z",
  events: "M4 6h10M4 12h16M4 18h7",
  inbox: "M4 13h4l2 3h4l2-3h4M4 13l3-8h10l3 8v5a1 1 0 0 1-1 1H5a1 1 0 0 1-1-1v-5Z",
  actors: "M12 8a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5ZM5.5 21a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5ZM18.5 21a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5ZM12 8v4m0 0H5.5v4M12 12h6.5v4",
  tools: "M14.5 6.5a4 4 0 0 0-5.3 5.3L3.5 17.5l3 3 5.7-5.7a4 4 0 0 0 5.3-5.3L15 12l-3-3 2.5-2.5Z",
  usage: "M4 20V10m5.3 10V4m5.4 16v-7M20 20V8",
  audit: "M8 4h8l4 4v12H4V4h4Zm1 8 2 2 4-4",
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  close: "M6 6l12 12M18 6 6 18",
  check: "M5 12.5 10 17 19 7.5",
  chevron: "M9 6l6 6-6 6",
  down: "M6 9l6 6 6-6",
  send: "M5 12h13m-5-6 6 6-6 6",
  stop: "M7 7h10v10H7z",
  clock: "M12 7v5l3 2M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18Z",
  retry: "M4 12a8 8 0 0 1 14-5l2 2m0-5v5h-5M20 12a8 8 0 0 1-14 5l-2-2m0 5v-5h5",
  warn: "M12 9v4m0 3.5v.01M10.3 4 2.6 17.5A2 2 0 0 0 4.3 20.5h15.4a2 2 0 0 0 1.7-3L13.7 4a2 2 0 0 0-3.4 0Z",
  shield: "M12 3 5 6v5c0 4.6 3 8 7 10 4-2 7-5.4 7-10V6l-7-3Z",
  fork: "M7 4v16M7 14c0-4 10-2 10-7m0 0a1.8 1.8 0 1 0 0-3.6A1.8 1.8 0 0 0 17 7Z",
  columns: "M4 5h16v14H4zM12 5v14",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  pause: "M9 6v12M15 6v12",
  play: "M8 5.5v13l10-6.5-10-6.5Z",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14Zm5-2 4 4",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8Zm0-13v2m0 14v2M3 12h2m14 0h2M5.6 5.6 7 7m10 10 1.4 1.4M5.6 18.4 7 17M17 7l1.4-1.4",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5Z",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  pencil: "M4 20l1-4L16 5l3 3L8 19l-4 1Z",
  layers: "M12 4 3 9l9 5 9-5-9-5ZM3 14l9 5 9-5",
  settings: "M4 7h9m4 0h3M4 17h3m4 0h9M15 9.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5ZM9 19.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5Z",
  list: "M9 6h11M9 12h11M9 18h11M4.5 6h.01M4.5 12h.01M4.5 18h.01",
  bolt: "M13 3 5 14h6l-1 7 8-11h-6l1-7Z",
  link: "M10 14a4 4 0 0 0 6 .4l3-3a4 4 0 0 0-5.7-5.7L12 7m2 3a4 4 0 0 0-6-.4l-3 3a4 4 0 0 0 5.7 5.7L12 17",
  up: "M12 19V5m-6 6 6-6 6 6",
  star: "M12 3.5l2.6 5.4 5.9.8-4.3 4.1 1 5.9-5.2-2.8-5.2 2.8 1-5.9-4.3-4.1 5.9-.8L12 3.5Z",
  trash: "M5 7h14M10 7V4h4v3m-7 0 1 13h8l1-13M10 11v5m4-5v5",
  compress: "M12 3v6m0 0L9 6m3 3 3-3M12 21v-6m0 0-3 3m3-3 3 3M4 12h16",
  branch: "M6 4v16M6 12h8a4 4 0 0 0 4-4V4",
} as const;

/** The name of an icon. */
export type IconName = keyof typeof PATHS;

/** An icon. It is hidden from screen readers. */
export function Icon({ name, size = 18 }: { name: IconName; size?: number }) {
  const filled = name === "stop" || name === "play";
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 24 24" aria-hidden="true"
      fill={filled ? "currentColor" : "none"} stroke="currentColor" stroke-width={name === "more" ? 3 : 1.8}
      stroke-linecap="round" stroke-linejoin="round">
      <path d={PATHS[name]} />
    </svg>
  );
}
