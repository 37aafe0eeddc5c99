// What the generated tests of the decoder's ops cannot see: bounds, data errors, and sums that must agree.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "base/threads.h"
#include "ir/op_def.h"
#include "ops/lm/score_plan.h"
#include "ops/op_list.h"
#include "ops/update/dynamic_map.h"

namespace hearth::ops {
namespace {

/// f32 or i32 values with their shape.
struct Tensor {
  Shape shape;
  std::vector<float> floats = {};
  std::vector<int32_t> integers = {};

  ir::Type type() const { return {.dtype = integers.empty() ? DType::f32 : DType::i32, .shape = shape}; }
  void* data() { return integers.empty() ? static_cast<void*>(floats.data()) : integers.data(); }
};
Tensor waves(const Shape& shape, double frequency) {
  Tensor made{.shape = shape, .floats = std::vector<float>(static_cast<size_t>(shape.num_elements()))};
  for (size_t i = 0; i < made.floats.size(); ++i)
    made.floats[i] = static_cast<float>(std::sin(frequency * static_cast<double>(i + 1)));
  return made;
}
Tensor integers(std::vector<int32_t> values) {
  const auto count = std::ssize(values);
  return {.shape = {count}, .floats = {}, .integers = std::move(values)};
}

struct Prepared {
  std::vector<ir::Type> in;
  std::vector<ir::Type> out;
  ir::Kernel kernel;
};
Prepared prepare(std::string_view name, const std::vector<ir::Type>& in, const ir::Attrs& attrs,
                 int num_threads) {
  const ir::OpDef& op = *find_op(name);
  Prepared made{.in = in, .out = {}, .kernel = {}};
  ir::Inferred inferred = op.infer({.attrs = attrs, .in = made.in, .out = {}});
  EXPECT_EQ(inferred.error, "");
  made.out = std::move(inferred.out);
  made.kernel = op.cpu({.attrs = attrs, .in = made.in, .out = made.out, .num_threads = num_threads});
  return made;
}

/// The f32 outputs of one node.
std::vector<std::vector<float>> run(std::string_view name, std::vector<Tensor> in, const ir::Attrs& attrs,
                                    int num_threads = 1) {
  std::vector<ir::Type> types;
  std::vector<void*> pointers, out;
  for (Tensor& tensor : in) {
    types.push_back(tensor.type());
    pointers.push_back(tensor.data());
  }
  const Prepared node = prepare(name, types, attrs, num_threads);
  std::vector<std::vector<float>> results;
  for (const ir::Type& type : node.out) results.emplace_back(static_cast<size_t>(type.shape.num_elements()));
  for (auto& result : results) out.push_back(result.data());
  std::vector<std::byte> workspace(static_cast<size_t>(node.kernel.workspace_bytes));
  ThreadPool threads(num_threads);
  node.kernel.run({.in = pointers, .out = out, .workspace = workspace.data(), .threads = &threads});
  return results;
}

ir::Attrs attention_attrs(int64_t batch) {
  return {{"batch", batch},
          {"heads", int64_t{2}},
          {"kv_heads", int64_t{1}},
          {"head_size", int64_t{8}},
          {"scale", 0.4}};
}
Tensor rows(const Tensor& from, int64_t first, int64_t count) {
  const int64_t width = from.shape[1];
  return {.shape = {count, width},
          .floats = std::vector<float>(from.floats.begin() + first * width,
                                       from.floats.begin() + (first + count) * width)};
}

TEST(Attention, PackedDocumentsSeeWhatTheyWouldAlone) {
  constexpr int64_t kLengths[] = {37, 80, 3};
  const Tensor q = waves({120, 16}, 0.37), k = waves({120, 8}, 0.71), v = waves({120, 8}, 1.3);
  std::vector<int32_t> starts;
  for (const int64_t length : kLengths)
    starts.insert(starts.end(), static_cast<size_t>(length), static_cast<int32_t>(starts.size()));
  const auto packed = run("attention", {q, k, v, integers(starts)}, attention_attrs(1))[0];
  int64_t first = 0;
  for (const int64_t length : kLengths) {
    const auto alone =
        run("attention", {rows(q, first, length), rows(k, first, length), rows(v, first, length)},
            attention_attrs(1))[0];
    for (size_t i = 0; i < alone.size(); ++i)
      ASSERT_NEAR(packed[static_cast<size_t>(first * 16) + i], alone[i], 1e-6) << first << " " << i;
    first += length;
  }
}

TEST(Attention, ThreadsChangeNoBit) {
  const std::vector<Tensor> in = {waves({600, 16}, 0.37), waves({600, 8}, 0.71), waves({600, 8}, 1.3)};
  const auto one = run("attention", in, attention_attrs(2), 1);
  EXPECT_EQ(run("attention", in, attention_attrs(2), 3), one);
  std::vector<Tensor> back = in;
  back.push_back({.shape = {600, 16}, .floats = one[0]});
  back.push_back({.shape = {600, 2}, .floats = one[1]});
  back.push_back(waves({600, 16}, 2.1));
  EXPECT_EQ(run("attention_grad", back, attention_attrs(2), 3),
            run("attention_grad", back, attention_attrs(2), 1));
}

TEST(Attention, NeverHasRoomForEveryScore) {
  constexpr int64_t kTime = 8192;
  const ir::Type q{.dtype = DType::f32, .shape = {kTime, 16}}, k{.dtype = DType::f32, .shape = {kTime, 8}};
  const ir::Type lse{.dtype = DType::f32, .shape = {kTime, 2}};
  EXPECT_LT(prepare("attention", {q, k, k}, attention_attrs(1), 2).kernel.workspace_bytes, kTime * kTime / 8);
  EXPECT_LT(prepare("attention_grad", {q, k, k, q, lse, q}, attention_attrs(1), 2).kernel.workspace_bytes,
            kTime * kTime / 8);
}

/// A Llama with 32 heads of 128 and 8 key heads.
ScorePlan plan_of_llama(int64_t batch, int64_t time, int64_t bytes = kMaxScoreBytes) {
  return {{.batch = batch, .kv_heads = 8, .queries_per_key = 4, .time = time, .head_size = 128}, bytes};
}

TEST(ScorePlan, IsWithinItsLimitAndMinimizesRanges) {
  const ScorePlan one = plan_of_llama(1, 1024);
  EXPECT_EQ(one.queries, 1024);
  EXPECT_EQ(one.key_heads, 8);
  EXPECT_EQ(one.score_bytes, int64_t{64} << 20);
  EXPECT_EQ(one.sum_bytes, 0);
  const ScorePlan groups = plan_of_llama(64, 512);
  EXPECT_EQ(groups.samples, 16);
  EXPECT_EQ(groups.queries, 512);
  const ScorePlan ranges = plan_of_llama(1, 8192);
  EXPECT_EQ(ranges.key_heads, 8);
  EXPECT_EQ(ranges.queries, 384);
  for (const int64_t time : {4096, 8192, 20000, 131072}) {
    const ScorePlan plan = plan_of_llama(3, time);
    EXPECT_TRUE(plan.is_stored()) << time;
    EXPECT_LE(plan.score_bytes + plan.sum_bytes, kMaxScoreBytes) << time;
  }
  EXPECT_FALSE(plan_of_llama(1, 1024, 0).is_stored());
}

TEST(AttentionGrad, NeedsMoreTimeWithoutStoredScores) {
  const ir::OpDef& op = *find_op("attention_grad");
  const ir::Type q{.dtype = DType::bf16, .shape = {300, 16}}, k{.dtype = DType::bf16, .shape = {300, 8}};
  const ir::Type lse{.dtype = DType::f32, .shape = {300, 2}};
  const std::vector<ir::Type> in = {q, k, k, q, lse, q}, out = {q, k, k};
  const ir::Attrs attrs = attention_attrs(1);
  const auto smaller = op.smaller({.attrs = attrs, .in = in, .out = out});
  ASSERT_TRUE(smaller);
  const ir::NodeView without{.attrs = *smaller, .in = in, .out = out};
  EXPECT_LT(op.cost(without).filled, op.cost({.attrs = attrs, .in = in, .out = out}).filled);
  EXPECT_FALSE(op.smaller(without));
}

TEST(Embedding, AnIdOutsideTheTableGivesNaN) {
  const auto y = run("embedding", {integers({1, 7, -1, 2}), waves({3, 2}, 0.5)}, {})[0];
  for (const size_t i : {0U, 1U, 6U, 7U}) EXPECT_TRUE(std::isfinite(y[i])) << i;
  for (const size_t i : {2U, 3U, 4U, 5U}) EXPECT_TRUE(std::isnan(y[i])) << i;
}

TEST(HeadCrossEntropy, ALabelPastTheVocabularyGivesNaN) {
  const std::vector<Tensor> in = {waves({4, 3}, 0.5), waves({9, 3}, 0.9), integers({8, 9, -1, 0})};
  const auto losses = run("head_cross_entropy", in, {})[0];
  EXPECT_TRUE(std::isfinite(losses[0]));
  EXPECT_TRUE(std::isnan(losses[1]));
  EXPECT_EQ(losses[2], 0);
  EXPECT_TRUE(std::isfinite(losses[3]));
}

TEST(HeadCrossEntropy, NothingToLearnGivesZeroGradients) {
  const std::vector<Tensor> in = {
      waves({4, 3}, 0.5), waves({9, 3}, 0.9), integers({-1, -1, -1, -1}), {.shape = {}, .floats = {1}}};
  for (const auto& result : run("head_cross_entropy_train", in, {}, 2)) {
    for (const float value : result) EXPECT_EQ(value, 0);
  }
}

TEST(HeadCrossEntropy, LogitsExistForOneChunk) {
  constexpr int64_t kTokens = 4096, kVocab = 32000;
  const ir::Type x{.dtype = DType::f32, .shape = {kTokens, 32}},
      w{.dtype = DType::f32, .shape = {kVocab, 32}};
  const ir::Type labels{.dtype = DType::i32, .shape = {kTokens}}, weight{.dtype = DType::f32, .shape = {}};
  const int64_t bytes =
      prepare("head_cross_entropy_train", {x, w, labels, weight}, {}, 2).kernel.workspace_bytes;
  EXPECT_LT(bytes, kTokens * kVocab * 4 / 8);
  EXPECT_GT(bytes, 256 * kVocab * 4);
  EXPECT_LT(prepare("head_cross_entropy", {x, w, labels}, {}, 2).kernel.workspace_bytes,
            256 * kVocab * 4 / 4);
}

/// Returns ids as a matrix with rows of `width`.
Tensor id_table(std::vector<int32_t> values, int64_t width) {
  Tensor made = integers(std::move(values));
  made.shape = {made.shape[0] / width, width};
  return made;
}
/// Returns the log-softmax of each row of 9 logits.
Tensor log_softmax(Tensor logits) {
  for (auto row = logits.floats.begin(); row != logits.floats.end(); row += 9) {
    float sum = 0;
    for (int v = 0; v < 9; ++v) sum += std::exp(row[v]);
    for (int v = 0; v < 9; ++v) row[v] -= std::log(sum);
  }
  return logits;
}

TEST(HeadCrossEntropy, ATeacherThatListsEveryTokenGivesTheDenseDivergence) {
  const Tensor x = waves({2, 3}, 0.5), w = waves({9, 3}, 0.9), teacher = log_softmax(waves({2, 9}, 1.7));
  const Tensor ids = id_table({0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8}, 9);
  const auto losses = run("head_cross_entropy", {x, w, integers({4, 8}), ids, teacher},
                          {{"distill_weight", 1.0}, {"temperature", 2.0}})[0];
  for (size_t t = 0; t < 2; ++t) {
    std::vector<double> student(9);
    double sum = 0, sum_teacher = 0, expected = 0;
    for (size_t v = 0; v < 9; ++v) {
      for (size_t c = 0; c < 3; ++c)
        student[v] += static_cast<double>(x.floats[t * 3 + c] * w.floats[v * 3 + c]);
      sum += std::exp(student[v] / 2);
      sum_teacher += std::exp(static_cast<double>(teacher.floats[t * 9 + v]) / 2);
    }
    for (size_t v = 0; v < 9; ++v) {
      const double log_q = static_cast<double>(teacher.floats[t * 9 + v]) / 2 - std::log(sum_teacher);
      expected += 4 * std::exp(log_q) * (log_q - (student[v] / 2 - std::log(sum)));
    }
    EXPECT_NEAR(static_cast<double>(losses[t]), expected, 1e-5) << t;
  }
}

TEST(HeadCrossEntropy, ATeacherThatAgreesGivesNoGradient) {
  const Tensor x = waves({5, 3}, 0.5), w = waves({40, 3}, 0.9), labels = integers({4, 8, -1, 0, 39});
  const ir::Attrs listed{{"k", int64_t{6}}, {"vocab", int64_t{40}}};
  auto top = run("head_top_k", {x, w, labels}, listed);
  std::vector<int32_t> ids(top[0].size());
  std::memcpy(ids.data(), top[0].data(), ids.size() * sizeof(int32_t));
  const Tensor logps{.shape = {5, 6}, .floats = top[1]};
  for (const char* divergence : {"forward", "reverse", "jsd"}) {
    const auto out =
        run("head_cross_entropy_train", {x, w, labels, {.shape = {}, .floats = {1}}, id_table(ids, 6), logps},
            {{"distill_weight", 1.0}, {"temperature", 1.5}, {"divergence", std::string(divergence)}});
    for (const auto& result : out) {
      for (const float value : result) EXPECT_NEAR(value, 0, 2e-6) << divergence;
    }
  }
}

TEST(HeadCrossEntropy, ThreadsChangeNoBitWithATeacher) {
  std::vector<int32_t> ids;
  for (int t = 0; t < 300; ++t) ids.insert(ids.end(), {t % 50, 100 + t, 1200 + t});
  std::vector<int32_t> targets(300);
  for (size_t t = 0; t < targets.size(); ++t) targets[t] = static_cast<int32_t>(t * 7 % 1600);
  Tensor logps = waves({300, 3}, 0.3);
  for (float& value : logps.floats) value -= 3;
  const std::vector<Tensor> in = {waves({300, 8}, 0.37),        waves({1600, 8}, 0.71), integers(targets),
                                  {.shape = {}, .floats = {1}}, id_table(ids, 3),       logps};
  const ir::Attrs attrs{{"rows", int64_t{64}}, {"distill_weight", 0.5}};
  EXPECT_EQ(run("head_cross_entropy_train", in, attrs, 3), run("head_cross_entropy_train", in, attrs, 1));
  const std::vector<Tensor> heads(in.begin(), in.begin() + 3);
  const ir::Attrs listed{{"rows", int64_t{64}}, {"k", int64_t{9}}, {"vocab", int64_t{1500}}};
  EXPECT_EQ(run("head_top_k", heads, listed, 3), run("head_top_k", heads, listed, 1));
}

TEST(DynamicMap, HasTheValuesOfBitsandbytes) {
  const DynamicMap& with = dynamic_map(true);
  const DynamicMap& without = dynamic_map(false);
  EXPECT_TRUE(std::is_sorted(with.begin(), with.end()));
  EXPECT_TRUE(std::is_sorted(without.begin(), without.end()));
  EXPECT_FLOAT_EQ(with[0], -0.99296875F);
  EXPECT_EQ(with[127], 0);
  EXPECT_FLOAT_EQ(with[128], 5.5e-7F);
  EXPECT_FLOAT_EQ(with[254], 0.99296875F);
  EXPECT_EQ(with[255], 1);
  EXPECT_EQ(without[0], 0);
  EXPECT_FLOAT_EQ(without[1], 3.25e-7F);
  EXPECT_FLOAT_EQ(without[254], 0.996484375F);
  EXPECT_EQ(without[255], 1);
}

TEST(DynamicMap, ASmallNumberKeepsItsSign) {
  const std::array<float, 4> in = {-1e-9F, 1e-9F, 0, -0.5F};
  std::array<uint8_t, 4> codes{};
  quantize_dynamic(true, in.data(), 1, codes.data(), 4);
  const uint8_t half = codes[3];
  EXPECT_EQ(codes[0], 127);
  keep_signs(in.data(), codes.data(), 4);
  EXPECT_EQ(codes, (std::array<uint8_t, 4>{126, 127, 127, half}));
}

TEST(DynamicMap, FindsEveryValueAgain) {
  for (const bool with_sign : {false, true}) {
    const DynamicMap& map = dynamic_map(with_sign);
    std::array<uint8_t, 256> codes{};
    quantize_dynamic(with_sign, map.data(), 1, codes.data(), 256);
    for (size_t i = 0; i < codes.size(); ++i) EXPECT_EQ(codes[i], i);
  }
}

}  // namespace
}  // namespace hearth::ops
