/** A small line chart of recent values. */

export function Sparkline({ values, label, minimumMax = 1 }: { values: number[]; label: string; minimumMax?: number }) {
  const [width, height] = [84, 20];
  const max = Math.max(minimumMax, ...values);
  const step = width / Math.max(1, values.length - 1);
  const points = values.map((value, index) => `${(index * step).toFixed(1)},${(height - 2 - (value / max) * (height - 4)).toFixed(1)}`);
  return (
    <svg class="sparkline" width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={label}>
      {points.length > 1 && <><polygon points={`0,${height} ${points.join(" ")} ${width},${height}`} /><polyline points={points.join(" ")} /></>}
    </svg>
  );
}
