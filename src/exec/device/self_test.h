#pragma once

#include <map>
#include <memory>
#include <string>

#include "backend/gpu/device.h"
#include "base/choices.h"
#include "base/file.h"
#include "base/function_ref.h"
#include "ir/graph.h"

namespace hearth::exec {

/// Tests a GPU's kernels against the float64 definitions of their ops before training uses them. Each kind of
/// node in the graphs (op and dtypes) is tested on the samples of its op, and each distinct node at its real
/// size (exec/device/trial.h). A kernel that cannot be tested counts as wrong. Results are cached in a file
/// per GPU, driver and build of Hearth. The name of a test is written to this file before the test runs, so
/// that a test that crashes the process is identified at the next start.
class SelfTest {
 public:
  struct Options {
    SelfTestMode when = SelfTestMode::never;
    fs::path folder;  ///< of the files; empty: nothing is remembered
  };
  SelfTest(gpu::DeviceInfo gpu, Options options);
  ~SelfTest();

  /// Tries what the graph needs and nobody has tried; a node whose way is wrong gets the usual one. UserError
  /// where the GPU answers nothing any more.
  void cover(ir::Graph& graph);
  /// Whether the kernel was not found to be wrong.
  bool trusts(const ir::OpDef& op, const ir::NodeView& view) const;
  /// Kernels, by kernel_name or node_name, that must not be used, with what they did.
  const std::map<std::string, std::string>& failures() const { return failures_; }
  int num_tried() const { return num_tried_; }

 private:
  class Session;
  void read();
  void note(std::string_view verdict, const std::string& kernel, std::string_view what);
  enum class Verdict : uint8_t { right, wrong, untried };
  struct Found {
    Verdict verdict = Verdict::untried;
    std::string what = "";
  };
  bool cover_node(const ir::Graph& graph, const ir::Node& node);
  Verdict verdict_on(const std::string& name, FunctionRef<Found()> trial);
  Found try_samples(const ir::OpDef& op, const ir::NodeView& view);
  Found try_node(const ir::OpDef& op, const ir::NodeView& view);
  Session& session();
  /// What a trial found wrong, or the GPU said; untried where it has too little memory.
  Found run(FunctionRef<std::string(Session&)> trial);

  gpu::DeviceInfo info_;
  Options options_;
  fs::path file_;
  std::unique_ptr<Session> session_;
  std::map<std::string, std::string> verdicts_;  ///< "right", "wrong", "trying", "untried", "open"
  std::map<std::string, std::string> failures_;
  int num_tried_ = 0;
};

/// What a kernel is known by: "add(f32, f32) -> f32", "matmul(bf16, bf16) -> bf16, way library".
std::string kernel_name(const ir::OpDef& op, const ir::NodeView& view);
/// The same with its shapes and all attributes: "relu(f32[4, 4]) -> f32[4, 4]".
std::string node_name(const ir::OpDef& op, const ir::NodeView& view);

}  // namespace hearth::exec
