// run_graph FILE: runs each node of a graph (ir/text.h) once on the first GPU, on memory of its own, and
// prints what it computes and moves at least, and the seconds that plans for an RX 7900 XT count on. Whole
// numbers are zero, of a leaf called "spread" below 1000, leaves called "zeros" and "boxes" are that (six
// boxes of each 120, ops/detect/detect.h), and the rest is as it comes. What each kernel costs is for others
// to count: an instruction emulator, a profiler.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/modules.h"
#include "cost/seconds.h"
#include "exec/device/gpu.h"
#include "ir/text.h"
#include "ops/op_list.h"

namespace {

using namespace hearth;

class Runner {
 public:
  explicit Runner(ir::Graph graph)
      : graph_(std::move(graph)), device_(gpu::list_devices().at(0)), stream_(device_) {}

  void run(const ir::Node& node) {
    const ir::NodeTypes types(graph_, node);
    const ir::NodeView view = types.view(node);
    const ir::Kernel kernel = device_.info().driver->kernel(node.op->name, view);
    std::vector<void*> in, out;
    for (const ir::ValueId id : node.inputs) in.push_back(place(id));
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const bool over = k < node.op->writes.size() && node.op->writes[k] >= 0;
      out.push_back(over ? in[static_cast<size_t>(node.op->writes[k])] : place(node.outputs[k]));
    }
    kernel.run({.in = in, .out = out, .workspace = room(kernel.workspace_bytes), .stream = &stream_});
    stream_.synchronize();
    memory_.clear();
    const ir::Cost cost = ir::cost_of(graph_, node);
    fmt::print("node {} flops={:.0f} bytes={:.0f} planned={}\n", node.op->name, cost.flops, cost.bytes,
               cost::seconds_of(graph_, node, cost::default_gpu()));
  }
  void run() {
    for (const ir::Node& node : graph_.nodes) {
      if (node.op->gpu && !node.op->is_view) run(node);
    }
  }

 private:
  std::byte* room(int64_t num_bytes) {
    return memory_.emplace_back(std::make_unique<gpu::Memory>(device_, num_bytes + exec::Gpu::kSlackBytes))
        ->data();
  }
  static void draw_boxes(std::vector<float>& numbers) {
    for (size_t i = 0; i + 5 <= numbers.size(); i += 5) {
      const size_t box = i / 5;
      const auto number = [&](size_t factor, size_t below) {
        return static_cast<float>(box * factor % below);
      };
      const std::array<float, 5> made = {number(1, 80), 80 + number(131, 480), 80 + number(197, 480),
                                         60 + number(61, 240), 60 + number(83, 240)};
      std::ranges::copy(made, numbers.begin() + static_cast<std::ptrdiff_t>(i));
      if (box % 120 >= 6) numbers[i] = -1;
    }
  }
  std::byte* place(ir::ValueId id) {
    if (id == ir::kNone) return nullptr;
    const ir::Value& value = graph_.values[static_cast<size_t>(id)];
    std::byte* const made = room(value.type.num_bytes());
    if (value.name == "zeros" || value.name == "boxes") {
      std::vector<float> numbers(static_cast<size_t>(value.type.shape.num_elements()));
      if (value.name == "boxes") draw_boxes(numbers);
      stream_.copy_in(made, numbers.data(), value.type.num_bytes());
      stream_.synchronize();
      return made;
    }
    if (is_floating(value.type.dtype)) return made;
    std::vector<int32_t> numbers(static_cast<size_t>(value.type.num_bytes()) / sizeof(int32_t) + 1);
    if (value.name == "spread" && value.type.dtype == DType::i32) {
      for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(i * 7919 % 1000);
    }
    stream_.copy_in(made, numbers.data(), value.type.num_bytes());
    stream_.synchronize();
    return made;
  }

  ir::Graph graph_;
  gpu::Device device_;
  gpu::Stream stream_;
  std::vector<std::unique_ptr<gpu::Memory>> memory_;
};

}  // namespace

int main(int argc, char** argv) try {
  std::ifstream file(argc == 2 ? argv[1] : "");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.empty()) throw std::runtime_error("expected a file with a graph");
  Runner(ir::parse(text, ops::find_op)).run();
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 2;
}
