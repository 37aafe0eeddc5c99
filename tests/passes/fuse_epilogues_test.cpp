#include <string>

#include "expect_pass.h"
#include "passes/fuse/fuse.h"

namespace hearth::passes {
namespace {

TEST(FuseEpilogues, FoldsBiasResidualAndReluIntoTheProducer) {
  const std::string leaves = R"(input %0 "x" : f32[4, 8]
input %1 "shortcut" : f32[4, 3]
parameter %2 "w" : f32[3, 8]
parameter %3 "b" : f32[3]
)";
  expect_pass(
      fuse_epilogues, leaves + R"(%4 = matmul(%0, %2) {transpose_a=0, transpose_b=1} : f32[4, 3]  # fc
%5 = bias_add(%4, %3) : f32[4, 3]
%6 = add(%5, %1) : f32[4, 3]
%7 = relu(%6) : f32[4, 3]
return %7
)",
      leaves +
          R"(%4 = matmul(%0, %2, %3, %1) {transpose_a=0, transpose_b=1, activation="relu"} : f32[4, 3]  # fc
return %4
)");
}

TEST(FuseEpilogues, LeavesAValueThatSomethingElseReads) {
  const std::string text = R"(input %0 "x" : f32[4, 8]
parameter %1 "w" : f32[3, 8]
%2 = matmul(%0, %1) {transpose_a=0, transpose_b=1} : f32[4, 3]
%3 = relu(%2) : f32[4, 3]
%4 = mul(%3, %2) : f32[4, 3]
return %4
)";
  expect_pass(fuse_epilogues, text, text);
}

TEST(FuseEpilogues, NeverPutsABiasBehindAnActivation) {
  const std::string leaves = R"(input %0 "x" : f32[4, 8]
parameter %1 "w" : f32[3, 8]
parameter %2 "b" : f32[3]
)";
  expect_pass(fuse_epilogues, leaves + R"(%3 = matmul(%0, %1) {transpose_a=0, transpose_b=1} : f32[4, 3]
%4 = relu(%3) : f32[4, 3]
%5 = bias_add(%4, %2) : f32[4, 3]
return %5
)",
              leaves + R"(%3 = matmul(%0, %1) {transpose_a=0, transpose_b=1, activation="relu"} : f32[4, 3]
%4 = bias_add(%3, %2) : f32[4, 3]
return %4
)");
}

TEST(FuseEpilogues, FoldsSiluIntoBatchNormOfABatchAlone) {
  const auto network = [](const std::string& norm, const std::string& end) {
    return R"(input %0 "x" : f32[2, 9, 9, 3]
parameter %1 "weight" : f32[3]
parameter %2 "bias" : f32[3]
parameter %3 "mean" : f32[3]
parameter %4 "var" : f32[3]
input %5 "shortcut" : f32[2, 9, 9, 3]
)" + norm + end;
  };
  const std::string moments = ", f32[3], f32[3], f32[3], f32[3]\n",
                    statistics = "%6, %7, %8, %9, %10 = batch_norm(%0, %1, %2, %3, %4";
  const std::string silu = "%11 = silu(%6) : f32[2, 9, 9, 3]\nreturn %11\n";
  const auto norm = [&](const std::string& inputs, const std::string& attrs) {
    return statistics + inputs + ") {momentum=0.1" + attrs + "} : f32[2, 9, 9, 3]" + moments;
  };
  expect_pass(fuse_epilogues, network(norm("", ""), silu),
              network(norm("", ", activation=\"silu\""), "return %6\n"));
  const std::string with_residual = network(norm(", %5", ""), silu);
  expect_pass(fuse_epilogues, with_residual, with_residual);
  const std::string given =
      network("%6 = batch_norm_infer(%0, %1, %2, %3, %4) {eps=0.001} : f32[2, 9, 9, 3]\n", silu);
  expect_pass(fuse_epilogues, given, given);
}

TEST(FuseEpilogues, LetsAMatmulAddToTheResidualStreamInF32) {
  const std::string leaves = R"(input %0 "x" : bf16[4, 8]
input %1 "stream" : f32[4, 3]
parameter %2 "w" : bf16[3, 8]
)";
  expect_pass(
      fuse_epilogues, leaves + R"(%3 = matmul(%0, %2) {transpose_a=0, transpose_b=1} : bf16[4, 3]
%4 = cast(%3) {dtype="f32"} : f32[4, 3]
%5 = add(%1, %4) : f32[4, 3]
return %5
)",
      leaves + R"(%3 = matmul(%0, %2, none, %1) {transpose_a=0, transpose_b=1, out_dtype="f32"} : f32[4, 3]
return %3
)");
}

// The matmul of the base weight gets the residual, that of the adapter adds to its result.
TEST(FuseEpilogues, AddsTheResidualToTheFirstOfSummedMatmuls) {
  const std::string leaves = R"(input %0 "x" : bf16[4, 8]
input %1 "low" : bf16[4, 2]
input %2 "stream" : f32[4, 3]
parameter %3 "w" : bf16[3, 8]
parameter %4 "b" : bf16[3, 2]
)";
  expect_pass(
      fuse_epilogues, leaves + R"(%5 = matmul(%0, %3) {transpose_a=0, transpose_b=1} : bf16[4, 3]
%6 = matmul(%1, %4, none, %5) {transpose_a=0, transpose_b=1} : bf16[4, 3]
%7 = cast(%6) {dtype="f32"} : f32[4, 3]
%8 = add(%2, %7) : f32[4, 3]
return %8
)",
      leaves + R"(%5 = matmul(%0, %3, none, %2) {transpose_a=0, transpose_b=1, out_dtype="f32"} : f32[4, 3]
%6 = matmul(%1, %4, none, %5) {transpose_a=0, transpose_b=1, out_dtype="f32"} : f32[4, 3]
return %6
)");
}

TEST(FuseEpilogues, LeavesACastOfAMatmulWithAResidualThatSomethingElseMakes) {
  const std::string text = R"(input %0 "x" : bf16[4, 8]
input %1 "given" : bf16[4, 3]
parameter %2 "w" : bf16[3, 8]
%3 = matmul(%0, %2, none, %1) {transpose_a=0, transpose_b=1} : bf16[4, 3]
%4 = cast(%3) {dtype="f32"} : f32[4, 3]
return %4
)";
  expect_pass(fuse_epilogues, text, text);
}

TEST(FuseEpilogues, LetsANormStoreTheDtypeOfItsCast) {
  const std::string leaves = R"(input %0 "x" : f32[4, 8]
parameter %1 "w" : f32[8]
)";
  expect_pass(fuse_epilogues, leaves + R"(%2, %3 = rms_norm(%0, %1) {eps=0.001} : f32[4, 8], f32[4]
%4 = cast(%2) {dtype="bf16"} : bf16[4, 8]
return %4
)",
              leaves + R"(%2, %3 = rms_norm(%0, %1) {eps=0.001, out_dtype="bf16"} : bf16[4, 8], f32[4]
return %2
)");
}

void fuse_sums_on_gpu(ir::Graph& graph) { fuse_sums(graph, true); }

TEST(FuseSums, AddsGradientsInTheMatmulOfTheLaterTerm) {
  const std::string leaves = R"(input %0 "dq" : f32[4, 3]
input %1 "dk" : f32[4, 3]
parameter %2 "q" : f32[3, 8]
parameter %3 "k" : f32[3, 8]
%4 = matmul(%0, %2) {transpose_a=0, transpose_b=0} : f32[4, 8]
)";
  expect_pass(fuse_sums_on_gpu, leaves + R"(%5 = matmul(%1, %3) {transpose_a=0, transpose_b=0} : f32[4, 8]
%6 = add(%4, %5) : f32[4, 8]
return %6
)",
              leaves + R"(%5 = matmul(%1, %3, none, %4) {transpose_a=0, transpose_b=0} : f32[4, 8]
return %5
)");
}

void share_and_copy(ir::Graph& graph) {
  fuse_sums_on_gpu(graph);
  share_casts(graph, true);
}

// The gradient of a norm is read in f32 by the residual stream and in 16 bits by the matmul before it.
TEST(ShareCasts, AddsTheResidualGradientInANormAndStoresA16BitCopy) {
  const std::string leaves = R"(input %0 "x" : f32[4, 8]
input %1 "dy" : f32[4, 8]
input %2 "dstream" : f32[4, 8]
input %3 "rstd" : f32[4]
parameter %4 "w" : f32[8]
)";
  expect_pass(
      share_and_copy, leaves + R"(%5, %6 = rms_norm_grad(%0, %4, %3, %1) {offset=0.0} : f32[4, 8], f32[8]
%7 = add(%2, %5) : f32[4, 8]
%8 = relu(%6) : f32[8]
%9 = cast(%7) {dtype="bf16"} : bf16[4, 8]
return %7, %8, %9
)",
      leaves +
          R"(%5, %6, %9 = rms_norm_grad(%0, %4, %3, %1, %2) {offset=0.0, out_dtype="bf16"} : f32[4, 8], f32[8], bf16[4, 8]
%8 = relu(%6) : f32[8]
return %5, %8, %9
)");
}

TEST(ShareCasts, SharesCastsOfTheSameValueToTheSameDtype) {
  const std::string leaves = R"(input %0 "x" : f32[4, 8]
%1 = relu(%0) : f32[4, 8]
%2 = cast(%1) {dtype="bf16"} : bf16[4, 8]
)";
  expect_pass(share_and_copy, leaves + R"(%3 = cast(%1) {dtype="f16"} : f16[4, 8]
%4 = cast(%1) {dtype="bf16"} : bf16[4, 8]
%5 = add(%2, %4) : bf16[4, 8]
return %5, %3, %4
)",
              leaves + R"(%3 = cast(%1) {dtype="f16"} : f16[4, 8]
%5 = add(%2, %2) : bf16[4, 8]
return %5, %3, %2
)");
}

// The update of a weight in the backward pass overwrites what the matmul reads.
TEST(FuseSums, LeavesAMatmulThatWouldReadAnUpdatedWeight) {
  const std::string text = R"(input %0 "dy" : f32[4, 3]
input %1 "x" : f32[4, 8]
parameter %2 "w" : f32[3, 8]
input %3 "dw" : f32[3, 8]
%4 = matmul(%0, %2) {transpose_a=0, transpose_b=0} : f32[4, 8]
%5 = accumulate(%2, %3) : f32[3, 8]
%6 = relu(%1) : f32[4, 8]
%7 = add(%4, %6) : f32[4, 8]
return %5, %7
)";
  expect_pass(fuse_sums_on_gpu, text, text);
}

// The norm cannot wait for a term that is computed after a reader of its other output.
TEST(FuseSums, LeavesASumOfWhichANormWouldHaveToWait) {
  const std::string text = R"(input %0 "x" : f32[4, 8]
input %1 "dy" : f32[4, 8]
input %2 "rstd" : f32[4]
parameter %3 "w" : f32[8]
%4, %5 = rms_norm_grad(%0, %3, %2, %1) {offset=0.0} : f32[4, 8], f32[8]
%6 = relu(%5) : f32[8]
%7 = relu(%1) : f32[4, 8]
%8 = add(%4, %7) : f32[4, 8]
return %6, %8
)";
  expect_pass(fuse_sums_on_gpu, text, text);
}

TEST(FuseAccumulate, AddsAMatmulToItsSumInPlace) {
  const std::string leaves = R"(input %0 "dy" : f32[4, 3]
input %1 "x" : f32[4, 8]
carried %2 "sum" : f32[3, 8]
)";
  expect_pass(fuse_accumulate, leaves + R"(%3 = matmul(%0, %1) {transpose_a=1, transpose_b=0} : f32[3, 8]
%4 = relu(%1) : f32[4, 8]
%5 = accumulate(%2, %3) : f32[3, 8]
return %4, %5
)",
              leaves + R"(%5 = matmul_accumulate(%2, %0, %1) {transpose_a=1, transpose_b=0} : f32[3, 8]
%4 = relu(%1) : f32[4, 8]
return %4, %5
)");
}

TEST(FuseAccumulate, LeavesASumThatIsReadBefore) {
  const std::string text = R"(input %0 "dy" : f32[4, 3]
input %1 "x" : f32[4, 8]
carried %2 "sum" : f32[3, 8]
%3 = matmul(%0, %1) {transpose_a=1, transpose_b=0} : f32[3, 8]
%4 = relu(%2) : f32[3, 8]
%5 = accumulate(%2, %3) : f32[3, 8]
return %4, %5
)";
  expect_pass(fuse_accumulate, text, text);
}

}  // namespace
}  // namespace hearth::passes
