#include "exec/device/self_test.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/hash.h"
#include "base/process.h"
#include "base/version.h"
#include "ops/sample.h"

namespace hearth::exec {
namespace {

constexpr double kDeadlineSeconds = 10;
constexpr std::string_view kRight = "right", kWrong = "wrong", kTrying = "trying", kOpen = "open";
/// The attribute that says which of an op's kernels a node has; empty: the usual one.
constexpr std::string_view kWay = "way";

std::string dtypes_of(std::span<const ir::Type> types) {
  std::vector<std::string_view> names;
  for (const ir::Type& type : types)
    names.push_back(type.dtype == DType::boolean ? "none" : dtype_name(type.dtype));
  return fmt::format("{}", fmt::join(names, ", "));
}

/// When this program was built; 0 where the system does not say.
int64_t time_of_program() {
  std::error_code ignored;
  const auto time = fs::last_write_time("/proc/self/exe", ignored);
  return ignored ? 0 : static_cast<int64_t>(time.time_since_epoch().count());
}

/// The sample done the way of `like`, with floating dtypes as `like` has them where `retyped`.
ir::Sample typed_like(ir::Sample sample, const ir::NodeView& like, bool retyped) {
  if (like.attrs.contains(kWay)) sample.attrs.set(kWay, like.attrs.text(kWay));
  for (size_t i = 0; retyped && i < std::min(sample.in.size(), like.in.size()); ++i) {
    DType& dtype = sample.in[i].type.dtype;
    if (is_floating(dtype) && is_floating(like.in[i].dtype)) dtype = like.in[i].dtype;
  }
  return sample;
}

/// What the node of a sample is called; empty where the op refuses it.
std::string name_of_sample(const ir::OpDef& op, const ir::Sample& sample) {
  std::vector<ir::Type> in;
  for (const ir::SampleInput& input : sample.in) {
    const bool absent = input.fill == ir::SampleInput::Fill::absent;
    in.push_back(absent ? ir::Type{.dtype = DType::boolean, .shape = {}} : input.type);
  }
  const ir::Inferred inferred = op.infer({.attrs = sample.attrs, .in = in, .out = {}});
  if (!inferred.error.empty()) return "";
  return kernel_name(op, ir::NodeView{.attrs = sample.attrs, .in = in, .out = inferred.out});
}

/// The op's samples with the dtypes of a node: its own, else others of the same shapes.
std::vector<ir::Sample> samples_like(const ir::OpDef& op, const ir::NodeView& view) {
  std::vector<ir::Sample> found;
  if (op.samples == nullptr) return found;
  const std::string wanted = kernel_name(op, view);
  for (const bool retyped : {false, true}) {
    for (const ir::Sample& sample : op.samples()) {
      ir::Sample typed = typed_like(sample, view, retyped);
      if (name_of_sample(op, typed) == wanted) found.push_back(std::move(typed));
    }
    if (!found.empty()) break;
  }
  return found;
}

}  // namespace

std::string kernel_name(const ir::OpDef& op, const ir::NodeView& view) {
  const std::string way = view.attrs.text_or(kWay, "");
  return fmt::format("{}({}) -> {}{}{}", op.name, dtypes_of(view.in), dtypes_of(view.out),
                     way.empty() ? "" : ", way ", way);
}

/// The GPU while kernels are tried.
class SelfTest::Session {
 public:
  explicit Session(int gpu) : device_(gpu), stream_(device_) {}

  /// The outputs of a sample's node.
  std::vector<std::vector<std::byte>> run(const ops::DrawnSample& sample) {
    const ir::Node& node = sample.node();
    const ir::NodeTypes types(sample.graph, node);
    const ir::Kernel kernel = node.op->gpu(types.view(node));
    std::vector<void*> in, out;
    for (const ir::ValueId id : node.inputs) in.push_back(id == ir::kNone ? nullptr : put(sample, id));
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const int written = k < node.op->writes.size() ? node.op->writes[k] : -1;
      out.push_back(written >= 0 ? in[static_cast<size_t>(written)] : room(types.out[k].num_bytes()));
    }
    kernel.run({.in = in, .out = out, .workspace = room(kernel.workspace_bytes), .stream = &stream_});
    std::vector<std::vector<std::byte>> outputs;
    for (size_t k = 0; k < out.size(); ++k) {
      outputs.emplace_back(static_cast<size_t>(types.out[k].num_bytes()));
      stream_.copy_out(outputs.back().data(), static_cast<std::byte*>(out[k]), types.out[k].num_bytes());
    }
    stream_.synchronize(kDeadlineSeconds);
    memory_.clear();
    return outputs;
  }

 private:
  std::byte* room(int64_t num_bytes) {
    memory_.push_back(std::make_unique<gpu::Memory>(device_, std::max<int64_t>(1, num_bytes)));
    return memory_.back()->data();
  }
  std::byte* put(const ops::DrawnSample& sample, ir::ValueId id) {
    const std::vector<std::byte> bytes = ops::to_bytes(sample.graph.type(id), sample.values.at(id));
    std::byte* place = room(std::ssize(bytes));
    stream_.copy_in(place, bytes.data(), std::ssize(bytes));
    stream_.synchronize(kDeadlineSeconds);
    return place;
  }

  gpu::Device device_;
  gpu::Stream stream_;
  std::vector<std::unique_ptr<gpu::Memory>> memory_;
};

SelfTest::SelfTest(int gpu, Options options) : gpu_(gpu), options_(std::move(options)) {
  if (options_.when == When::never) return;
  info_ = gpu::list_devices().at(static_cast<size_t>(gpu));
  if (options_.folder.empty()) return;
  const std::string what = fmt::format("{}|{}|{}|{}|{}", info_.name, info_.architecture, info_.driver,
                                       kVersion, time_of_program());
  std::error_code refused;
  fs::create_directories(options_.folder, refused);
  if (refused) return;
  file_ = options_.folder / fmt::format("kernels-{:016x}.txt", hash64(what));
  if (options_.when == When::always) {
    write_file_atomically(file_, "");
  } else {
    read();
  }
}

SelfTest::~SelfTest() = default;

void SelfTest::read() {
  if (!fs::exists(file_)) return;
  std::istringstream lines(read_file(file_));
  std::map<std::string, std::string> whats;
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find('\t'), second = line.find('\t', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string kernel = line.substr(first + 1, second - first - 1);
    verdicts_[kernel] = line.substr(0, first);
    whats[kernel] = line.substr(second + 1);
  }
  std::erase_if(verdicts_, [&](const auto& entry) {
    return entry.second == kOpen || (entry.second == kTrying && process_runs(whats[entry.first]));
  });
  for (const auto& [kernel, verdict] : verdicts_) {
    if (verdict == kWrong) failures_[kernel] = whats[kernel];
    if (verdict == kTrying) failures_[kernel] = "the program ended while it was tried";
  }
}

void SelfTest::note(std::string_view verdict, const std::string& kernel, std::string_view what) {
  verdicts_[kernel] = verdict;
  if (file_.empty()) return;
  std::ofstream(file_, std::ios::app) << verdict << '\t' << kernel << '\t' << what << '\n';
}

void SelfTest::cover(ir::Graph& graph) {
  if (options_.when == When::never) return;
  for (ir::Node& node : graph.nodes) {
    // What copies between memories needs more than a GPU's.
    if (node.op->gpu == nullptr || node.op->transfer != ir::Transfer::none) continue;
    if (cover_node(graph, node) || !node.attrs.contains(kWay)) continue;
    node.attrs.set(kWay, std::string());
    cover_node(graph, node);
  }
  session_.reset();
}

/// Whether its kernel may be used.
bool SelfTest::cover_node(const ir::Graph& graph, const ir::Node& node) {
  const ir::NodeTypes types(graph, node);
  const ir::NodeView view = types.view(node);
  const std::string kernel = kernel_name(*node.op, view);
  if (!verdicts_.contains(kernel)) try_kernel(*node.op, view, kernel);
  return !failures_.contains(kernel);
}

void SelfTest::try_kernel(const ir::OpDef& op, const ir::NodeView& view, const std::string& kernel) {
  note(kTrying, kernel, fmt::format("{}", getpid()));
  ++num_tried_;
  std::string what;
  try {
    what = trial(op, view);
  } catch (const UserError&) {
    note(kOpen, kernel, "");
    throw;
  }
  note(what.empty() ? kRight : kWrong, kernel, what);
  if (!what.empty()) failures_[kernel] = what;
}

std::string SelfTest::trial(const ir::OpDef& op, const ir::NodeView& view) {
  std::string found;
  for (const ir::Sample& sample : samples_like(op, view)) {
    const ops::DrawnSample drawn = ops::draw_sample(op, sample, 0);
    try {
      if (!session_) session_ = std::make_unique<Session>(gpu_);
    } catch (const gpu::DeviceError& error) {
      user_error("expected {} to answer, got '{}'; try again after restarting the machine", info_.name,
                 error.what());
    }
    try {
      found = ops::compare_with_reference(drawn, session_->run(drawn));
    } catch (const gpu::DeviceError& error) {
      if (error.kind() == gpu::DeviceError::Kind::out_of_memory)
        user_error("expected some memory of {} to be free, got '{}'; try to end what else uses it",
                   info_.name, error.what());
      found = error.what();
      session_.reset();
    }
    if (!found.empty()) break;
  }
  return found;
}

bool SelfTest::trusts(const ir::OpDef& op, const ir::NodeView& view) const {
  return failures_.empty() || !failures_.contains(kernel_name(op, view));
}

}  // namespace hearth::exec
