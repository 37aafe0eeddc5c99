#include "exec/device/matmul_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "backend/gpu/driver.h"
#include "base/process.h"
#include "base/version.h"
#include "exec/device/trial.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/matmul_kernel.h"
#include "ops/random/draw.h"

namespace hearth::exec {
namespace {

/// Prefix of the value stored for a library while it is being measured. The id of the measuring process
/// follows.
constexpr std::string_view kMeasuringPrefix = "trying ";
/// Number of rows of the result that are compared with those of the default variant.
constexpr int64_t kComparedRows = 128;

std::string key_of(const ir::NodeView& node) {
  const ops::MatmulShape p = ops::matmul_shape_of(node);
  return fmt::format("{} {} {} a {} {} b {} {} {} {}{}", p.m, p.n, p.k, p.a_row, p.a_term, p.b_term,
                     p.b_column, dtype_name(node.in_type(0).dtype), dtype_name(node.out_type(0).dtype),
                     node.has_input(ops::MatmulIn::residual) ? " + c" : "");
}

gpu::BlasMatmul blas_matmul_of(const ir::NodeView& node) {
  return ops::blas_matmul_of(ops::matmul_shape_of(node), node.in_type(0).dtype, node.out_type(0).dtype);
}

/// Allocates a tensor of that type on the GPU and fills it with random numbers.
std::unique_ptr<gpu::Memory> draw(gpu::Device& device, gpu::Stream& stream, const ir::Type& type,
                                  uint32_t seed) {
  auto memory = std::make_unique<gpu::Memory>(device, std::max<int64_t>(1, type.num_bytes()));
  ops::draw_on_gpu(device, stream, type, memory->data(), seed);
  return memory;
}

/// Reads kComparedRows rows of a matrix on the GPU, evenly distributed over all rows.
std::vector<float> read(gpu::Stream& stream, const std::byte* from, const ir::Type& type) {
  const std::vector<int64_t> rows = spread(type.shape[0], kComparedRows);
  const int64_t width = type.shape[1], row_bytes = width * dtype_bytes(type.dtype);
  std::vector<std::byte> bytes(rows.size() * static_cast<size_t>(row_bytes));
  for (size_t i = 0; i < rows.size(); ++i)
    stream.copy_out(bytes.data() + static_cast<int64_t>(i) * row_bytes, from + rows[i] * row_bytes,
                    row_bytes);
  stream.synchronize();
  std::vector<float> values(rows.size() * static_cast<size_t>(width));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(load_element(type.dtype, bytes.data(), static_cast<int64_t>(i)));
  return values;
}

/// Prepares a kernel variant of the matmul without bias.
ir::Kernel kernel_of(const gpu::Driver& driver, const ir::NodeView& node, const std::string& way) {
  ir::StandaloneNode alone{
      .attrs = node.attrs, .in = {node.in.begin(), node.in.begin() + 2}, .out = {node.out_type(0)}};
  alone.attrs.set("way", way);
  if (node.has_input(ops::MatmulIn::residual))
    ops::add_residual(alone, node.in_type(ops::MatmulIn::residual));
  return driver.kernel(ops::matmul.name, alone.view());
}

}  // namespace

/// While this object exists, the file contains the note that this process is measuring the library. If the
/// process crashes, the next start finds the note and disables the library.
class MatmulChoice::Attempt {
 public:
  explicit Attempt(MatmulChoice& choice) : choice_(choice) {
    choice_.file_.keep(choice_.library_key(), {.name = fmt::format("{}{}", kMeasuringPrefix, getpid())});
  }
  ~Attempt() { choice_.file_.keep(choice_.library_key(), {.name = "tried"}); }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

 private:
  MatmulChoice& choice_;
};

/// Device and stream of the GPU, open while choose() runs.
struct MatmulChoice::Session {
  explicit Session(const gpu::DeviceInfo& gpu) : device(gpu), stream(device) {}
  gpu::Device device;
  gpu::Stream stream;
};

MatmulChoice::MatmulChoice(gpu::DeviceInfo gpu, const fs::path& file, double max_seconds)
    : gpu_(std::move(gpu)),
      library_(gpu_.driver->runtime().library),
      file_(file),
      seconds_left_(max_seconds) {
  gpu_name_ = fmt::format("{}|{}|{}|{}", gpu_.name, gpu_.architecture, gpu_.driver_version, kVersion);
  const std::string last = file_.find(library_key()).value_or("");
  if (library_.empty() || !last.starts_with(kMeasuringPrefix) ||
      process_runs(last.substr(kMeasuringPrefix.size())))
    return;
  dropped_.push_back(fmt::format(
      "{}: disabled, because it crashed the process that measured it on {}; delete {} to measure it again",
      library_, gpu_.name, file.string()));
  library_.clear();
}

MatmulChoice::~MatmulChoice() = default;

std::string MatmulChoice::library_key() const { return gpu_name_ + "|" + library_; }

void MatmulChoice::choose(ir::Graph& graph) {
  for (ir::Node& node : graph.nodes) {
    const ir::GpuKernel* const kernel = gpu_.driver->find_kernel(node.op->name);
    if (kernel == nullptr || kernel->matmuls == nullptr) continue;
    const ir::NodeTypes types(graph, node);
    std::vector<std::string> words;
    for (const ir::StandaloneNode& matmul : kernel->matmuls(types.view(node)))
      words.push_back(winner(matmul.view()));
    if (std::ranges::any_of(words, [](const std::string& word) { return !word.empty(); }))
      node.attrs.set("way", fmt::format("{}", fmt::join(words, ",")));
  }
  session_.reset();
  report_other_versions();
}

MatmulChoice::Session& MatmulChoice::session() {
  if (!session_) session_ = std::make_unique<Session>(gpu_);
  return *session_;
}

/// True if the cached variant can be used. An algorithm of the library is used only if the library accepts
/// it.
bool MatmulChoice::accepts(const ir::NodeView& node, const Variants& ways, const std::string& name) {
  if (!ops::is_library_variant(name)) return std::ranges::find(ways, name) != ways.end();
  gpu::BlasMatmul matmul = blas_matmul_of(node);
  matmul.algorithm = ops::algorithm_in(name);
  if (name == ops::kLibraryVariant) return session().stream.algorithms(matmul).empty();
  const std::string fault =
      matmul.algorithm ? session().stream.algorithm_fault(matmul) : "it does not have 128 hexadecimal digits";
  if (fault.empty()) return true;
  replaced_.push_back(
      fmt::format("{1}: the algorithm of {0} for the matmul {2} is not valid ({3}); the matmul is measured "
                  "again",
                  library_, file_.path().string(), key_of(node), fault));
  return false;
}

/// Records other versions of the library for which the file has a result of this matmul on this GPU.
void MatmulChoice::find_other_versions(const ir::NodeView& node) {
  const std::string product = library_.substr(0, library_.rfind(' ') + 1);
  std::set<std::string> found;
  for (const std::string& version : file_.find_between(gpu_name_ + "|" + product, "|" + key_of(node)))
    found.insert(product + version);
  found.erase(library_);
  num_of_other_versions_ += found.empty() ? 0 : 1;
  other_versions_.merge(found);
}

void MatmulChoice::report_other_versions() {
  if (num_of_other_versions_ == 0) return;
  replaced_.push_back(
      fmt::format("{} matmuls that were measured with {} are measured again with {}; results may differ in "
                  "their last bits",
                  num_of_other_versions_, fmt::join(other_versions_, " and "), library_));
  other_versions_.clear();
  num_of_other_versions_ = 0;
}

/// Replaces the library's variant by a variant for each algorithm that it recommends.
void MatmulChoice::add_algorithms(const ir::NodeView& node, Variants& ways) {
  std::vector<gpu::BlasAlgorithm> algorithms;
  try {
    algorithms = session().stream.algorithms(blas_matmul_of(node));
  } catch (const gpu::DeviceError&) {
    return;  // The library's variant fails with the same message.
  }
  if (algorithms.empty()) return;
  ways.pop_back();
  for (const gpu::BlasAlgorithm& algorithm : algorithms) ways.push_back(ops::library_variant(algorithm));
}

/// Returns the name of the fastest kernel variant; empty if there is only one variant.
std::string MatmulChoice::winner(const ir::NodeView& node) {
  const auto names = gpu_.driver->find_kernel(ops::matmul.name)->ways(node, !library_.empty());
  Variants ways(names.begin(), names.end());
  if (ways.size() < 2) return "";
  const bool asks_library = ways.back() == ops::kLibraryVariant;
  const std::string key = (asks_library ? library_key() : gpu_name_) + "|" + key_of(node);
  if (const auto known = winners_.find(key); known != winners_.end()) return known->second;
  std::string_view why = "the time limit is reached";
  const auto none = [&] { return gpu::AutotuneResult{.num_not_measured = static_cast<int>(ways.size())}; };
  const auto accepts = [&](const std::string& name) { return this->accepts(node, ways, name); };
  const gpu::AutotuneResult verdict = gpu::find_or_autotune(file_, key, accepts, [&] {
    if (seconds_left_ <= 0) return none();
    std::optional<Attempt> attempt;
    if (asks_library) {
      find_other_versions(node);
      attempt.emplace(*this);
      add_algorithms(node, ways);
    }
    try {
      return autotune(node, ways);
    } catch (const gpu::DeviceError& error) {
      if (error.kind() != gpu::DeviceError::Kind::out_of_memory) throw;
      why = "not enough GPU memory";
      return none();
    }
  });
  if (verdict.num_not_measured > 0)
    dropped_.push_back(fmt::format("{} of {} variants of the matmul {} were not measured: {}",
                                   verdict.num_not_measured, ways.size(), key_of(node), why));
  return winners_[key] = verdict.name;
}

gpu::AutotuneResult MatmulChoice::autotune(const ir::NodeView& node, const Variants& ways) {
  using Clock = std::chrono::steady_clock;
  ++num_autotuned_;
  const auto begin = Clock::now();
  auto& [device, stream] = session();
  const ir::Type& out = node.out_type(0);
  const bool residual = node.has_input(ops::MatmulIn::residual);
  const auto a = draw(device, stream, node.in_type(0), 1), b = draw(device, stream, node.in_type(1), 2);
  const auto added = residual ? draw(device, stream, out, 3) : nullptr;
  stream.synchronize();
  const gpu::Memory c(device, std::max<int64_t>(1, out.num_bytes()));
  std::vector<gpu::Candidate> candidates;
  int num_algorithms = 0;
  for (const std::string& way : ways) {
    const ir::Kernel kernel = kernel_of(*gpu_.driver, node, way);
    const bool is_algorithm = ops::algorithm_in(way).has_value();
    candidates.push_back(
        {.name = is_algorithm ? fmt::format("library, algorithm {}", ++num_algorithms) : way,
         .workspace_bytes = kernel.workspace_bytes,
         .run = [&, run = kernel.run](gpu::Stream& queue, std::byte* workspace) {
           void* const in[] = {a->data(), b->data(), nullptr, residual ? added->data() : nullptr};
           void* const made[] = {c.data()};
           run({.in = in, .out = made, .workspace = workspace, .stream = &queue});
         }});
  }
  gpu::AutotuneResult verdict =
      gpu::autotune(candidates, device, [&](gpu::Stream& queue) { return read(queue, c.data(), out); },
                    {.tolerance = gpu::sum_tolerance(ops::matmul_shape_of(node).k + (residual ? 1 : 0),
                                                     ops::kDrawnProduct, out.dtype),
                     .max_seconds = seconds_left_});
  seconds_left_ -= std::chrono::duration<double>(Clock::now() - begin).count();
  dropped_.insert(dropped_.end(), verdict.dropped.begin(), verdict.dropped.end());
  const auto winner = std::ranges::find(candidates, verdict.name, &gpu::Candidate::name);
  verdict.name = ways[static_cast<size_t>(winner - candidates.begin())];
  return verdict;
}

}  // namespace hearth::exec
