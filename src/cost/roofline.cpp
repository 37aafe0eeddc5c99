#include "cost/roofline.h"

#include <algorithm>

#include "cost/seconds.h"
#include "ir/kernel_group.h"
#include "ir/op_def.h"

namespace hearth::cost {
namespace {

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

Roofline make_roofline(const ir::Graph& graph, const Device& device) {
  Roofline made;
  const std::vector<bool> launches = ir::kernel_starts(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ir::Node& node = graph.nodes[i];
    if (node.op->is_view) continue;
    const ir::Cost cost = ir::cost_of(graph, node);
    add_row(made, {.op = std::string(node.op->name),
                   .count = 1,
                   .launches = launches[i] ? 1 : 0,
                   .flops = cost.flops,
                   .bytes = cost.bytes,
                   .seconds = seconds_of(graph, node, device) + (launches[i] ? device.launch_seconds : 0)});
    made.expected.add(expected_seconds(graph, node, device), 1);
    if (launches[i]) made.expected.add({device.launch_seconds, device.launch_seconds}, 1);
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
  expected.add(other.expected, times);
  sort_rows(*this);
}

}  // namespace hearth::cost
