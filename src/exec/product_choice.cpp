#include "exec/product_choice.h"

#include <fmt/format.h>

#include "base/philox.h"
#include "base/version.h"
#include "ir/op_def.h"
#include "ops/matmul/product.h"
#include "ops/sample.h"

namespace hearth::exec {
namespace {

using ops::Product;
using ops::ProductWay;

/// Sums of rounded products in another order: a share of the largest.
constexpr double kTolerance = 1e-2;

std::string key_of(const ir::NodeView& node) {
  const Product p = ops::product_of(node);
  return fmt::format("{} {} {} a {} {} b {} {} {} {}", p.m, p.n, p.k, p.a_row, p.a_term, p.b_term, p.b_column,
                     dtype_name(node.in_type(0).dtype), dtype_name(node.out_type(0).dtype));
}

/// A value of that type on the card, its elements drawn from a normal distribution.
std::unique_ptr<gpu::Memory> draw(gpu::Device& device, gpu::Stream& stream, const ir::Type& type) {
  PhiloxSequence random(1, static_cast<uint64_t>(type.num_bytes()));
  std::vector<double> values(static_cast<size_t>(type.shape.num_elements()));
  for (double& value : values) value = static_cast<double>(random.normal());
  const std::vector<std::byte> bytes = ops::to_bytes(type, values);
  auto memory = std::make_unique<gpu::Memory>(device, std::max<int64_t>(1, type.num_bytes()));
  stream.copy_in(memory->data(), bytes.data(), type.num_bytes());
  stream.synchronise();
  return memory;
}

std::vector<float> read(gpu::Stream& stream, const std::byte* from, const ir::Type& type) {
  std::vector<std::byte> bytes(static_cast<size_t>(type.num_bytes()));
  stream.copy_out(bytes.data(), from, std::ssize(bytes));
  stream.synchronise();
  std::vector<float> values(static_cast<size_t>(type.shape.num_elements()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(load_element(type.dtype, bytes.data(), static_cast<int64_t>(i)));
  return values;
}

}  // namespace

ProductChoice::ProductChoice(int card, const fs::path& file) : card_(card), file_(file) {
  const gpu::DeviceInfo info = gpu::list_devices().at(static_cast<size_t>(card));
  card_name_ = fmt::format("{}|{}|{}|{}", info.name, info.architecture, info.driver, kVersion);
}

void ProductChoice::choose(ir::Graph& graph) {
  for (ir::Node& node : graph.nodes) {
    if (node.op->name != "matmul") continue;
    const ir::NodeTypes types(graph, node);
    if (const std::string way = winner(types.view(node)); !way.empty()) node.attrs.set("way", way);
  }
  device_.reset();
}

gpu::Device& ProductChoice::device() {
  if (!device_) device_ = std::make_unique<gpu::Device>(card_);
  return *device_;
}

/// Empty where there is nothing to choose.
std::string ProductChoice::winner(const ir::NodeView& node) {
  if (ops::ways_of(node.in_type(0).dtype).size() < 2) return "";
  const std::string key = card_name_ + "|" + key_of(node);
  if (const auto known = winners_.find(key); known != winners_.end()) return known->second;
  std::vector<gpu::Contender> names;
  for (const ProductWay way : ops::ways_of(node.in_type(0).dtype))
    names.push_back({.name = std::string(ops::name_of(way))});
  const gpu::Verdict verdict = gpu::find_or_contest(file_, key, names, [&] { return contest(node); });
  return winners_[key] = verdict.name;
}

gpu::Verdict ProductChoice::contest(const ir::NodeView& node) {
  ++num_contests_;
  gpu::Device& device = this->device();
  gpu::Stream stream(device);
  const ir::Type &out = node.out_type(0), in = node.in_type(0);
  const auto a = draw(device, stream, in), b = draw(device, stream, node.in_type(1));
  const gpu::Memory c(device, std::max<int64_t>(1, out.num_bytes()));
  const Product product = ops::product_of(node);
  std::vector<gpu::Contender> contenders;
  const auto enter = [&](ProductWay way) {
    const ops::ProductKernel kernel(product, in.dtype, out.dtype, way);
    contenders.push_back({.name = std::string(ops::name_of(way)),
                          .workspace_bytes = kernel.workspace_bytes(),
                          .run = [&, kernel](gpu::Stream& queue, std::byte* workspace) {
                            kernel.launch(
                                queue.handle(),
                                {.a = a->data(), .b = b->data(), .c = c.data(), .workspace = workspace});
                          }});
  };
  const ProductWay usual = ops::ProductKernel::usual_way(product, in.dtype);
  enter(usual);
  for (const ProductWay way : ops::ways_of(in.dtype)) {
    if (way != usual) enter(way);
  }
  gpu::Verdict verdict = gpu::hold_contest(
      contenders, device, [&](gpu::Stream& queue) { return read(queue, c.data(), out); }, kTolerance);
  dropped_.insert(dropped_.end(), verdict.dropped.begin(), verdict.dropped.end());
  return verdict;
}

}  // namespace hearth::exec
