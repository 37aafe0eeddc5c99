#include "exec/device/self_test.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/hash.h"
#include "base/process.h"
#include "base/shared_library.h"
#include "base/version.h"
#include "cost/seconds.h"
#include "exec/device/gpu_choice.h"
#include "exec/device/trial.h"
#include "exec/program.h"
#include "ops/random/draw.h"
#include "ops/sample.h"

namespace hearth::exec {
namespace {

/// Timeout for running a node alone, in addition to the time that the cost model allows.
constexpr double kDeadlineSeconds = 10;
constexpr std::string_view kRight = "right", kWrong = "wrong", kTrying = "trying", kUntested = "untried",
                           kOpen = "open";
/// Name of the attribute that selects a kernel variant of an op; an empty value selects the default.
constexpr std::string_view kVariant = "way";

std::vector<std::string_view> dtypes_of(std::span<const ir::Type> types) {
  std::vector<std::string_view> names;
  for (const ir::Type& type : types)
    names.push_back(type.dtype == DType::boolean ? "none" : dtype_name(type.dtype));
  return names;
}
/// Returns the dtypes of inputs or outputs that identify a kernel: without absent ones at the end, and with
/// equal adjacent dtypes of an op with a variable number of inputs listed once.
std::vector<std::string_view> kernel_dtypes(const ir::OpDef& op, std::span<const ir::Type> types) {
  std::vector<std::string_view> names = dtypes_of(types);
  while (!names.empty() && names.back() == "none") names.pop_back();
  const bool takes_many = !op.inputs.empty() && op.inputs.back().ends_with('+');
  if (takes_many) names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::string types_of(std::span<const ir::Type> types) {
  std::vector<std::string> names;
  for (const ir::Type& type : types)
    names.push_back(type.dtype == DType::boolean
                        ? "none"
                        : fmt::format("{}{}", dtype_name(type.dtype), to_string(type.shape)));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string text_of(const ir::Attr& attr) {
  return std::visit(
      [](const auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, std::vector<int64_t>> || std::is_same_v<T, std::vector<double>>)
          return fmt::format("[{}]", fmt::join(value, ", "));
        else
          return fmt::format("{}", value);
      },
      attr);
}

/// Returns the modification time of a file as a number; 0 if unknown.
int64_t time_of(const fs::path& file) {
  std::error_code ignored;
  const auto time = fs::last_write_time(file, ignored);
  return ignored ? 0 : static_cast<int64_t>(time.time_since_epoch().count());
}
/// Identifies the build by the modification times of the program and of the module that contains its GPU
/// kernels.
std::string time_of_build(const gpu::Driver& driver) {
  const auto kernel = reinterpret_cast<const void*>(driver.find_kernel("matmul")->one);
  return fmt::format("{}|{}", time_of("/proc/self/exe"), time_of(file_of(kernel)));
}

/// Returns the sample with the kernel variant of the node `like` and, if `retyped`, also with its floating
/// dtypes.
ir::Sample typed_like(ir::Sample sample, const ir::NodeView& like, bool retyped) {
  if (like.attrs.contains(kVariant)) sample.attrs.set(kVariant, like.attrs.text(kVariant));
  for (size_t i = 0; retyped && i < std::min(sample.in.size(), like.in.size()); ++i) {
    DType& dtype = sample.in[i].type.dtype;
    if (is_floating(dtype) && is_floating(like.in[i].dtype)) dtype = like.in[i].dtype;
  }
  return sample;
}

/// Returns the kernel_name of the sample's node; empty if the op rejects the sample.
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

/// Returns the op's samples whose kernel_name is that of the node. If there are none, converts the samples to
/// the node's dtypes.
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
  std::string way = view.attrs.text_or(kVariant, "");
  // Removes the library's algorithm: samples run once for all algorithms, and each algorithm is tested by the
  // nodes that use it.
  for (size_t colon = way.find(':'); colon != way.npos; colon = way.find(':'))
    way.erase(colon, way.find(',', colon) - colon);
  return fmt::format("{}({}) -> {}{}{}", op.name, fmt::join(kernel_dtypes(op, view.in), ", "),
                     fmt::join(kernel_dtypes(op, view.out), ", "), way.empty() ? "" : ", way ", way);
}

std::string node_name(const ir::OpDef& op, const ir::NodeView& view) {
  std::string name = fmt::format("{}({}) -> {}", op.name, types_of(view.in), types_of(view.out));
  for (const auto& [key, value] : view.attrs.entries()) {
    const std::string text = text_of(value);
    if (!text.empty()) name += fmt::format(", {} {}", key, text);
  }
  return name;
}

/// Returns the timeout in seconds for running the node on the GPU.
double deadline_of(const ir::OpDef& op, const ir::NodeView& view) {
  ir::Graph graph;
  std::vector<ir::ValueId> in;
  for (const ir::Type& type : view.in)
    in.push_back(type.dtype == DType::boolean ? ir::kNone : graph.add_value("", type, ir::Role::input));
  graph.add(op, in, view.attrs);
  return kDeadlineSeconds + allowed_seconds(cost::seconds_of(graph, graph.nodes[0], cost::default_gpu()));
}

/// The GPU, kept open while kernels are tested.
class SelfTest::Session {
 public:
  explicit Session(const gpu::DeviceInfo& gpu) : device_(gpu), stream_(device_) {}

  using Outputs = std::vector<std::vector<std::byte>>;

  /// Runs a sample's node and returns its outputs.
  Outputs run(const ops::DrawnSample& sample) {
    const ir::Node& node = sample.node();
    const ir::NodeTypes types(sample.graph, node);
    std::vector<void*> in;
    for (const ir::ValueId id : node.inputs)
      in.push_back(id == ir::kNone ? nullptr
                                   : put(ops::to_bytes(sample.graph.type(id), sample.values.at(id))));
    return run(*node.op, types.view(node), in);
  }
  Outputs run(const ir::OpDef& op, const NodeTest& trial) {
    std::vector<void*> in;
    for (size_t i = 0; i < trial.in.size(); ++i) {
      const ir::Type& type = trial.in[i];
      if (type.dtype == DType::boolean) {
        in.push_back(nullptr);
      } else if (!is_floating(type.dtype)) {
        in.push_back(put(test_input(trial, i)));
      } else {
        std::byte* const place = room(type.num_bytes());
        ops::draw_on_gpu(device_, stream_, type, place, static_cast<uint32_t>(i), trial.scales[i]);
        in.push_back(place);
      }
    }
    return run(op, {.attrs = trial.attrs, .in = trial.in, .out = trial.out}, in);
  }

 private:
  Outputs run(const ir::OpDef& op, const ir::NodeView& view, const std::vector<void*>& in) {
    const ir::Kernel kernel = device_.info().driver->kernel(op.name, view);
    std::vector<void*> out;
    for (size_t k = 0; k < view.out.size(); ++k) {
      const int written = k < op.writes.size() ? op.writes[k] : -1;
      out.push_back(written >= 0 ? in[static_cast<size_t>(written)] : room(view.out[k].num_bytes()));
    }
    kernel.run({.in = in, .out = out, .workspace = room(kernel.workspace_bytes), .stream = &stream_});
    Outputs outputs;
    for (size_t k = 0; k < out.size(); ++k) {
      outputs.emplace_back(static_cast<size_t>(view.out[k].num_bytes()));
      stream_.copy_out(outputs.back().data(), static_cast<std::byte*>(out[k]), view.out[k].num_bytes());
    }
    stream_.synchronize(deadline_of(op, view));
    memory_.clear();
    return outputs;
  }
  std::byte* room(int64_t num_bytes) {
    memory_.push_back(std::make_unique<gpu::Memory>(device_, std::max<int64_t>(1, num_bytes)));
    return memory_.back()->data();
  }
  std::byte* put(const std::vector<std::byte>& bytes) {
    std::byte* place = room(std::ssize(bytes));
    stream_.copy_in(place, bytes.data(), std::ssize(bytes));
    stream_.synchronize(kDeadlineSeconds);
    return place;
  }

  gpu::Device device_;
  gpu::Stream stream_;
  std::vector<std::unique_ptr<gpu::Memory>> memory_;
};

SelfTest::SelfTest(gpu::DeviceInfo gpu, Options options)
    : info_(std::move(gpu)), options_(std::move(options)) {
  if (options_.when == SelfTestMode::never || options_.folder.empty()) return;
  const std::string what = fmt::format("{}|{}|{}|{}|{}", info_.name, info_.architecture, info_.driver_version,
                                       kVersion, time_of_build(*info_.driver));
  std::error_code refused;
  fs::create_directories(options_.folder, refused);
  if (refused) return;
  file_ = options_.folder / fmt::format("kernels-{:016x}.txt", hash64(what));
  if (options_.when == SelfTestMode::always) {
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
    if (verdict == kTrying) failures_[kernel] = "the program crashed while it was tested";
  }
}

void SelfTest::note(std::string_view verdict, const std::string& kernel, std::string_view what) {
  verdicts_[kernel] = verdict;
  if (file_.empty()) return;
  std::ofstream(file_, std::ios::app) << verdict << '\t' << kernel << '\t' << what << '\n';
}

void SelfTest::cover(ir::Graph& graph) {
  if (options_.when == SelfTestMode::never) return;
  for (ir::Node& node : graph.nodes) {
    // Ops that copy between device and host memory cannot be tested with GPU memory alone.
    if (!node.op->gpu || node.op->transfer != ir::Transfer::none) continue;
    if (cover_node(graph, node) || !node.attrs.contains(kVariant)) continue;
    node.attrs.set(kVariant, std::string());
    cover_node(graph, node);
  }
  session_.reset();
}

/// Tests the node's kernel, unless the result is known. Returns true if the kernel may be used.
bool SelfTest::cover_node(const ir::Graph& graph, const ir::Node& node) {
  const ir::NodeTypes types(graph, node);
  const ir::NodeView view = types.view(node);
  const ir::OpDef& op = *node.op;
  const std::string kernel = kernel_name(op, view), own = node_name(op, view);
  const Verdict of_samples = verdict_on(kernel, [&] { return test_samples(op, view); });
  if (of_samples == Verdict::wrong) return false;
  return verdict_on(own, [&] {
           Found found = test_node(op, view);
           if (found.verdict == Verdict::untried && of_samples == Verdict::untried)
             found = {.verdict = Verdict::wrong, .what = "there is no test for it"};
           return found;
         }) != Verdict::wrong;
}

/// Returns the known result of the test with this name; if there is none, runs the test and stores its
/// result.
SelfTest::Verdict SelfTest::verdict_on(const std::string& name, FunctionRef<Found()> trial) {
  const auto known = verdicts_.find(name);
  if (known == verdicts_.end()) {
    note(kTrying, name, fmt::format("{}", getpid()));
    Found found;
    try {
      found = trial();
    } catch (const UserError&) {
      note(kOpen, name, "");
      throw;
    }
    if (found.verdict != Verdict::untried) ++num_tested_;
    if (found.verdict == Verdict::wrong) failures_[name] = found.what;
    note(found.verdict == Verdict::right   ? kRight
         : found.verdict == Verdict::wrong ? kWrong
                                           : kUntested,
         name, found.what);
    return found.verdict;
  }
  if (failures_.contains(name)) return Verdict::wrong;
  return known->second == kUntested ? Verdict::untried : Verdict::right;
}

SelfTest::Found SelfTest::test_samples(const ir::OpDef& op, const ir::NodeView& view) {
  Found found;
  for (const ir::Sample& sample : samples_like(op, view)) {
    const ops::DrawnSample drawn = ops::draw_sample(op, sample, 0);
    found = run([&](Session& session) { return ops::compare_with_reference(drawn, session.run(drawn)); });
    if (found.verdict != Verdict::right) break;
  }
  if (found.verdict == Verdict::untried && !found.what.empty())
    user_error("{} is out of memory ({}); close other programs that use this GPU", info_.name, found.what);
  return found;
}

/// Tests a node at its real size. Returns "untried" if the node does not fit into GPU memory; the allocation
/// for training then reports it.
SelfTest::Found SelfTest::test_node(const ir::OpDef& op, const ir::NodeView& view) {
  const std::optional<NodeTest> trial = node_test_of(op, view);
  if (!trial) return {};
  return run([&](Session& session) { return compare_with_excerpt(op, *trial, session.run(op, *trial)); });
}

SelfTest::Session& SelfTest::session() {
  try {
    if (!session_) session_ = std::make_unique<Session>(info_);
  } catch (const gpu::DeviceError& error) {
    user_error("{} does not respond ({}); restart the machine and try again", info_.name, error.what());
  }
  return *session_;
}

SelfTest::Found SelfTest::run(FunctionRef<std::string(Session&)> trial) {
  Session& gpu = session();
  try {
    std::string what = trial(gpu);
    const Verdict verdict = what.empty() ? Verdict::right : Verdict::wrong;
    return {.verdict = verdict, .what = std::move(what)};
  } catch (const gpu::DeviceError& error) {
    session_.reset();
    if (error.kind() == gpu::DeviceError::Kind::no_code) {
      const gpu::Runtime runtime = info_.driver->runtime();
      user_error(
          "{} {} finds no code for {} ({}) in this build of Hearth ({}); with this runtime installed, run {}",
          runtime.name, runtime.version, info_.name, info_.architecture, error.what(),
          build_command(runtime, info_.architecture));
    }
    const bool is_full = error.kind() == gpu::DeviceError::Kind::out_of_memory;
    return {.verdict = is_full ? Verdict::untried : Verdict::wrong, .what = error.what()};
  }
}

bool SelfTest::trusts(const ir::OpDef& op, const ir::NodeView& view) const {
  return failures_.empty() ||
         (!failures_.contains(kernel_name(op, view)) && !failures_.contains(node_name(op, view)));
}

}  // namespace hearth::exec
