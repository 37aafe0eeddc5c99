#include "passes/roofline.h"

#include <algorithm>

#include "ir/op_def.h"
#include "passes/group_updates.h"

namespace hearth::passes {
namespace {

/// Rates follow what a node reads: what it multiplies.
double rate_of(const ir::Graph& graph, const ir::Node& node, const GpuModel& gpu) {
  const ir::ValueId first = node.inputs.empty() ? ir::kNone : node.inputs[0];
  const bool half = first != ir::kNone && dtype_bytes(graph.type(first).dtype) == 2;
  return half ? gpu.half_flops_per_second : gpu.full_flops_per_second;
}

void add_row(Roofline& roofline, const RooflineRow& row) {
  const auto found = std::ranges::find(roofline.rows, row.op, &RooflineRow::op);
  RooflineRow& sum =
      found == roofline.rows.end() ? roofline.rows.emplace_back(RooflineRow{.op = row.op}) : *found;
  sum.count += row.count;
  sum.launches += row.launches;
  sum.flops += row.flops;
  sum.bytes += row.bytes;
  sum.seconds += row.seconds;
  roofline.launches += row.launches;
  roofline.flops += row.flops;
  roofline.bytes += row.bytes;
  roofline.seconds += row.seconds;
}

void sort_rows(Roofline& roofline) {
  std::ranges::stable_sort(roofline.rows, std::ranges::greater(), &RooflineRow::seconds);
}

}  // namespace

double kernel_seconds(const ir::Graph& graph, const ir::Node& node, const GpuModel& gpu) {
  const ir::Cost cost = ir::cost_of(graph, node);
  if (node.op->transfer != ir::Transfer::none) return cost.bytes / gpu.link_bytes_per_second;
  return std::max(cost.flops / rate_of(graph, node, gpu), cost.bytes / gpu.bytes_per_second);
}

Roofline make_roofline(const ir::Graph& graph, const GpuModel& gpu) {
  Roofline made;
  size_t together = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ir::Node& node = graph.nodes[i];
    if (node.op->is_view) continue;
    const bool launches = together == 0;
    if (launches) together = num_together(graph, i);
    --together;
    const ir::Cost cost = ir::cost_of(graph, node);
    add_row(made, {.op = std::string(node.op->name),
                   .count = 1,
                   .launches = launches ? 1 : 0,
                   .flops = cost.flops,
                   .bytes = cost.bytes,
                   .seconds = kernel_seconds(graph, node, gpu) + (launches ? gpu.launch_seconds : 0)});
  }
  sort_rows(made);
  return made;
}

void Roofline::add(const Roofline& other, int times) {
  for (const RooflineRow& row : other.rows) {
    add_row(*this, {.op = row.op,
                    .count = times * row.count,
                    .launches = times * row.launches,
                    .flops = times * row.flops,
                    .bytes = times * row.bytes,
                    .seconds = times * row.seconds});
  }
  sort_rows(*this);
}

}  // namespace hearth::passes
