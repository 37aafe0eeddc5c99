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
    fs::path folder;  ///< folder of the result files; empty: results are not stored
  };
  /// Reads the results of earlier tests. With SelfTestMode::never nothing is tested and every kernel is
  /// trusted; with always, earlier results are discarded.
  SelfTest(gpu::DeviceInfo gpu, Options options);
  ~SelfTest();

  /// Tests every untested kernel of the graph. A node whose kernel variant fails uses the default variant.
  /// Throws UserError if the GPU stops responding.
  void cover(ir::Graph& graph);
  /// True unless a test of this kernel or node failed.
  bool trusts(const ir::OpDef& op, const ir::NodeView& view) const;
  /// Kernels that must not be used, by kernel_name or node_name, with the reason.
  const std::map<std::string, std::string>& failures() const { return failures_; }
  /// Number of kernels and nodes tested by this object.
  int num_tested() const { return num_tested_; }

 private:
  class Session;
  void read();
  void note(std::string_view verdict, const std::string& kernel, std::string_view what);
  enum class Verdict : uint8_t { right, wrong, untried };
  /// Result of a test and the reason for it.
  struct Found {
    Verdict verdict = Verdict::untried;
    std::string what = "";
  };
  bool cover_node(const ir::Graph& graph, const ir::Node& node);
  Verdict verdict_on(const std::string& name, FunctionRef<Found()> trial);
  Found test_samples(const ir::OpDef& op, const ir::NodeView& view);
  Found test_node(const ir::OpDef& op, const ir::NodeView& view);
  Session& session();
  /// Runs a test. Its text, or the GPU's error, is a failure; out of memory counts as untested.
  Found run(FunctionRef<std::string(Session&)> trial);

  gpu::DeviceInfo info_;
  Options options_;
  fs::path file_;
  std::unique_ptr<Session> session_;
  std::map<std::string, std::string> verdicts_;  ///< "right", "wrong", "trying", "untried", "open"
  std::map<std::string, std::string> failures_;
  int num_tested_ = 0;
};

/// Returns the key of a kernel: "add(f32, f32) -> f32", "matmul(bf16, bf16) -> bf16, way library".
std::string kernel_name(const ir::OpDef& op, const ir::NodeView& view);
/// Returns the key of a node, with shapes and all attributes: "relu(f32[4, 4]) -> f32[4, 4]".
std::string node_name(const ir::OpDef& op, const ir::NodeView& view);

}  // namespace hearth::exec
