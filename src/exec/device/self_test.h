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

/// Tests a GPU's kernels against the float64 definitions of their ops before training uses them. Each kernel
/// that the graphs need (op and dtypes) is tested on the op's samples, and each distinct node at its real
/// size (exec/device/trial.h). A kernel that cannot be tested counts as wrong. Results are cached in a file
/// per GPU, driver and build of Hearth. The name of a test is written to the file before the test runs, so
/// that the next start can identify a test that crashed the process.
class SelfTest {
 public:
  struct Options {
    SelfTestMode when = SelfTestMode::never;
    fs::path folder;  ///< folder of the result files; empty: results are not stored
  };
  /// Reads the results of earlier tests. SelfTestMode::never: nothing is tested and every kernel is trusted.
  /// always: earlier results are ignored.
  SelfTest(gpu::DeviceInfo gpu, Options options);
  ~SelfTest();

  /// Tests all kernels of the graph that have not been tested. If a node's kernel variant fails, sets the
  /// node to the default variant. Throws UserError if the GPU stops responding.
  void cover(ir::Graph& graph);
  /// True unless a test of this node, or of its kernel, has failed.
  bool trusts(const ir::OpDef& op, const ir::NodeView& view) const;
  /// Kernels and nodes that failed: maps kernel_name or node_name to the reason.
  const std::map<std::string, std::string>& failures() const { return failures_; }
  /// Number of kernels and nodes tested by this object.
  int num_tested() const { return num_tested_; }

 private:
  class Session;
  void read();
  void note(std::string_view verdict, const std::string& kernel, std::string_view what);
  enum class Verdict : uint8_t { right, wrong, untried };
  /// Verdict of a test and, unless it is `right`, the reason.
  struct Found {
    Verdict verdict = Verdict::untried;
    std::string what = "";
  };
  bool cover_node(const ir::Graph& graph, const ir::Node& node);
  Verdict verdict_on(const std::string& name, FunctionRef<Found()> trial);
  Found test_samples(const ir::OpDef& op, const ir::NodeView& view);
  Found test_node(const ir::OpDef& op, const ir::NodeView& view);
  Session& session();
  /// Runs a test, which returns a description of its failure or an empty string. An error of the GPU is a
  /// failure too, except out of memory, which gives the verdict `untried`.
  Found run(FunctionRef<std::string(Session&)> trial);

  gpu::DeviceInfo info_;
  Options options_;
  fs::path file_;
  std::unique_ptr<Session> session_;
  /// State of each test by name: "right", "wrong", "trying" (started), "untried" or "open" (interrupted).
  std::map<std::string, std::string> verdicts_;
  std::map<std::string, std::string> failures_;
  int num_tested_ = 0;
};

/// Returns the name of the kernel test for a node: "add(f32, f32) -> f32", "matmul(bf16, bf16) -> bf16, way
/// library".
std::string kernel_name(const ir::OpDef& op, const ir::NodeView& view);
/// Returns the name of the test of a node, with shapes and all attributes: "relu(f32[4, 4]) -> f32[4, 4]".
std::string node_name(const ir::OpDef& op, const ir::NodeView& view);

}  // namespace hearth::exec
