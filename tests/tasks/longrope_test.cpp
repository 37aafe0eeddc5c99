#include <gtest/gtest.h>

#include <cmath>

#include "engine/engine.h"
#include "tasks/language/language_model.h"

namespace hearth::tasks {
namespace {

constexpr int64_t kContext = 48, kOriginal = 20;

/// The loss of one row of documents of so many tokens, of a model whose rope is as given.
double loss_of(const char* rope, int64_t document) {
  const std::string config = std::string(R"({"model_type": "llama", "vocab_size": 50, "hidden_size": 16,
"intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 48,
"initializer_range": 0.4)") + rope +
                             "}";
  engine::EngineOptions options{
      .objective =
          language_model({.config = models::parse_decoder_config(config, "test"), .context = kContext}),
      .batch = 1};
  const int64_t sizes[] = {1};
  engine::Engine engine(options, {}, sizes);
  engine.initialize();
  std::vector<int32_t> tokens(kContext + 16), labels(tokens.size()), positions(tokens.size());
  for (size_t i = 0; i < kContext; ++i) {
    tokens[i] = static_cast<int32_t>(i * 37 % 50);
    labels[i] = static_cast<int32_t>(i * 13 % 50);
    positions[i] = static_cast<int32_t>(static_cast<int64_t>(i) % document);
  }
  return engine.evaluate(
      {{{"tokens", tokens.data()}, {"labels", labels.data()}, {"positions", positions.data()}}, 1});
}

TEST(Longrope, IsChosenByTheLongestDocumentOfABatch) {
  const char* longrope =
      R"(, "original_max_position_embeddings": 20, "rope_scaling": {"rope_type": "longrope",
"attention_factor": 1.0, "short_factor": [1, 1, 1, 1], "long_factor": [2, 2, 2, 2]})";
  const char* linear = R"(, "rope_scaling": {"rope_type": "linear", "factor": 2.0})";
  // Rows of 48 tokens are longer than the original context; what counts is their documents.
  EXPECT_EQ(loss_of(longrope, kOriginal), loss_of("", kOriginal));
  EXPECT_NEAR(loss_of(longrope, kOriginal + 1), loss_of(linear, kOriginal + 1), 1e-5);
  EXPECT_GT(std::abs(loss_of("", kOriginal + 1) - loss_of(linear, kOriginal + 1)), 1e-3);
}

}  // namespace
}  // namespace hearth::tasks
