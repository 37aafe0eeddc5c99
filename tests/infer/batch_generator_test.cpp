#include "infer/batch_generator.h"

#include <gmock/gmock.h>

#include <cmath>

#include "backend/cpu/simd/simd.h"
#include "base/error.h"
#include "hub/adapter.h"
#include "hub/weights.h"
#include "tasks/language/language_model.h"
#include "temporary_folder.h"
#include "text/tokenizer.h"
#include "tiny_language_model.h"

namespace hearth::infer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// The pieces of an answer.
struct Received {
  std::vector<int32_t> ids;
  std::vector<double> logprobs;
  std::vector<std::vector<TokenLogprob>> top;
  std::string text;
  std::optional<FinishReason> finish;
};

/// Appends pieces to `received`, and cancels after `max_ids` tokens.
BatchGenerator::Emit receiver(Received& received, size_t max_ids = 10'000) {
  return [&received, max_ids](const GeneratedPiece& piece) {
    EXPECT_FALSE(received.finish) << "a piece after the last one";
    EXPECT_NE(piece.id.has_value(), piece.finish.has_value());
    if (piece.id) received.ids.push_back(*piece.id);
    if (piece.id) received.logprobs.push_back(piece.logprob);
    if (piece.id) received.top.emplace_back(piece.top.begin(), piece.top.end());
    received.text += piece.text;
    received.finish = piece.finish;
    return received.ids.size() < max_ids;
  };
}

std::vector<int32_t> numbers(int64_t count, int32_t factor) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < count; ++i) ids.push_back((i + 1) * factor % 95);
  return ids;
}

class Batching : public testing::Test {
 protected:
  Batching() { write_model(""); }
  /// Writes a model of random weights. `more`: keys of config.json that replace the tiny model's.
  void write_model(const std::string& more) {
    write_tiny_model(folder_.path());
    std::string config = read_file(folder_.path() / "config.json");
    config.replace(config.rfind('}'), 1, more + "}");
    write_file_atomically(folder_.path() / "config.json", config);
    const engine::EngineOptions options{
        .objective = tasks::language_model(
            {.config = models::read_decoder_config(folder_.path() / "config.json"), .context = 8})};
    const int64_t sizes[] = {1};
    engine::Engine engine(options, {}, sizes);
    engine.initialize();
    hub::save_weights(engine, folder_.path() / "model.safetensors", false);
    tokenizer_ = text::open_tokenizer(folder_.path());
  }
  BatchGenerator open(const BatchOptions& options) const {
    return {hub::find_model(folder_.path()), tokenizer_.get(), options};
  }
  fs::path adapter_folder(const std::string& name) const { return folder_.path() / name; }
  /// Writes a LoRA of random weights for the model.
  void write_adapter(const std::string& name, int64_t rank, float weight) const {
    const recipe::Adapter description{.name = recipe::AdapterKind::lora, .rank = rank, .alpha = 16};
    const engine::EngineOptions options{
        .objective = tasks::language_model(
            {.config = models::read_decoder_config(folder_.path() / "config.json"), .context = 8}),
        .adapter = hub::builder_adapter(description, {}),
        .seed = static_cast<uint64_t>(rank)};
    const int64_t sizes[] = {1};
    engine::Engine engine(options, {}, sizes);
    engine.initialize();
    for (const nn::Tensor& tensor : engine.plan().tensors) {
      if (!tensor.name.ends_with("lora_B.weight")) continue;
      for (float& value : engine::values(engine, tensor.name))
        value = weight = 1.7F * weight - std::round(weight);
    }
    fs::create_directories(adapter_folder(name));
    hub::save_weights(engine, adapter_folder(name) / hub::kAdapterFile, false);
    write_file_atomically(adapter_folder(name) / hub::kAdapterConfig,
                          hub::adapter_config_json(description, {}, engine.plan().tensors, folder_.path()));
  }
  Generator open_generator(const std::string& adapter, const BatchOptions& options) const {
    const fs::path model = adapter.empty() ? folder_.path() : adapter_folder(adapter);
    return {hub::find_model(model), {.slots = options.tokens_per_slot, .precision = options.precision}};
  }
  /// Returns the answer that infer::answer() gives, and the log-probability of each of its tokens.
  Received expected(Generator& generator, const GenerationRequest& request) const {
    Received found;
    generator.restart();
    const Answer answer = infer::answer(generator, tokenizer_.get(), request.prompt, request.options,
                                        [&](std::string_view piece) { found.text += piece; });
    found.ids = answer.ids;
    found.finish = answer.ended ? FinishReason::stop : FinishReason::length;
    generator.restart();
    std::span<const float> logits = generator.feed(request.prompt);
    for (const int32_t id : found.ids) {
      double sum = 0;
      const double max = *std::ranges::max_element(logits);
      for (const float logit : logits) sum += std::exp(logit - max);
      found.logprobs.push_back(logits[static_cast<size_t>(id)] - (max + std::log(sum)));
      if (found.logprobs.size() < found.ids.size()) logits = generator.feed({&id, 1});
    }
    return found;
  }
  Received expected(const GenerationRequest& request, const BatchOptions& options) const {
    Generator generator = open_generator(request.adapter, options);
    return expected(generator, request);
  }
  /// Requests of different kinds, whose prompts have one token, or more or less than a chunk.
  static std::vector<GenerationRequest> mixed_requests() {
    std::vector<GenerationRequest> requests;
    const auto add = [&](int64_t length, AnswerOptions options) {
      requests.push_back({.prompt = numbers(length, 7 + 2 * static_cast<int32_t>(requests.size())),
                          .options = std::move(options),
                          .top_logprobs = 0});
    };
    add(1, {.max_tokens = 30});
    add(64, {.sampler = {.temperature = 1, .seed = 3}, .max_tokens = 9});
    add(65, {.sampler = {.temperature = 0.8, .top_k = 20, .seed = 4}, .max_tokens = 25});
    add(150, {.sampler = {.repetition_penalty = 1.3}, .max_tokens = 12});
    add(2, {.sampler = {.temperature = 2, .top_p = 0.9, .seed = 5}, .max_tokens = 40});
    add(67, {.sampler = {.presence_penalty = 0.5, .frequency_penalty = 0.5}, .max_tokens = 17});
    add(33, {.sampler = {.temperature = 1, .seed = 6}, .max_tokens = 1000});
    add(3, {.sampler = {.temperature = 1.5, .logit_bias = {{40, 3}}, .seed = 7}, .max_tokens = 35});
    add(128, {.sampler = {.temperature = 1, .seed = 8}, .max_tokens = 20});
    add(5, {.max_tokens = 0});
    return requests;
  }
  /// Submits the requests one after the other, 0 or 3 steps apart, to generators with these numbers of slots.
  /// Compares each answer bit by bit with the one that a Generator gives.
  void expect_answers_of_generator(BatchOptions options,
                                   std::initializer_list<int64_t> slot_counts = {8}) const {
    std::vector<GenerationRequest> requests = mixed_requests();
    std::vector<Generator> generators;
    generators.push_back(open_generator("", options));
    for (const NamedAdapter& adapter : options.adapters)
      generators.push_back(open_generator(adapter.name, options));
    std::vector<Received> wanted;
    for (size_t i = 0; i < requests.size(); ++i) {
      const size_t adapter = i % generators.size();
      if (adapter > 0) requests[i].adapter = options.adapters[adapter - 1].name;
      wanted.push_back(expected(generators[adapter], requests[i]));
    }
    for (const int64_t num_slots : slot_counts) {
      options.num_slots = num_slots;
      BatchGenerator generator = open(options);
      for (const int gap : {0, 3}) {
        std::vector<Received> received(requests.size());
        for (size_t i = 0; i < requests.size(); ++i) {
          generator.submit(requests[i], receiver(received[i]));
          for (int step = 0; step < gap; ++step) generator.step();
        }
        while (generator.step()) {
        }
        for (size_t i = 0; i < requests.size(); ++i) {
          EXPECT_EQ(received[i].ids, wanted[i].ids) << "request " << i;
          EXPECT_EQ(received[i].text, wanted[i].text) << "request " << i;
          EXPECT_EQ(received[i].finish, wanted[i].finish) << "request " << i;
          EXPECT_EQ(received[i].logprobs, wanted[i].logprobs) << "request " << i;
        }
      }
      EXPECT_EQ(generator.counters().num_finished, 2 * std::ssize(requests));
      EXPECT_EQ(generator.counters().num_active, 0);
    }
  }
  std::string fault(FunctionRef<void()> body) const {
    try {
      body();
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }

  TemporaryFolder folder_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  Received none_;
};

TEST_F(Batching, GivesTheAnswersOfAGenerator) {
  expect_answers_of_generator({.tokens_per_slot = 200}, {1, 2, 5, 10});
  expect_answers_of_generator({.tokens_per_slot = 200, .compute = {.num_threads = 2}}, {3});
}

TEST_F(Batching, GivesTheAnswersOfAGeneratorForWideLayersAndInBf16) {
  // Matmuls of 256 terms and more use another algorithm for few rows, as do those of bf16.
  for (
      const char* shape :
      {R"(, "hidden_size": 288, "intermediate_size": 768, "num_attention_heads": 6, "num_key_value_heads": 3)",
       R"(, "hidden_size": 36, "intermediate_size": 1203)"}) {
    write_model(shape);
    for (const DType precision : {DType::f32, DType::bf16})
      expect_answers_of_generator({.tokens_per_slot = 200, .precision = precision});
  }
}

TEST_F(Batching, GivesTheAnswersOfAGeneratorWithOlderInstructions) {
  const cpu::SimdKernels best = cpu::simd();
  write_model(R"(, "hidden_size": 288, "intermediate_size": 301)");
  cpu::use_simd(cpu::kBaselineKernels);
  expect_answers_of_generator({.tokens_per_slot = 200});
#if defined(__x86_64__)
  if (best.isa != cpu::kBaselineKernels.isa) {
    cpu::use_simd(cpu::kAvx2Kernels);
    expect_answers_of_generator({.tokens_per_slot = 200});
  }
#endif
  cpu::use_simd(best);
}

TEST_F(Batching, AnswersWithSeveralAdapters) {
  write_adapter("first", 8, 0.3F);
  write_adapter("second", 8, 0.4F);
  BatchOptions options{.num_slots = 5, .tokens_per_slot = 200};
  options.adapters = {{"first", adapter_folder("first")}, {"second", adapter_folder("second")}};
  expect_answers_of_generator(options);
  const GenerationRequest request{.prompt = numbers(70, 7), .options = {.max_tokens = 20}, .top_logprobs = 0};
  BatchGenerator generator = open(options);
  std::vector<std::vector<double>> logprobs;
  for (const char* adapter : {"", "first", "second", "first"}) {
    GenerationRequest adapted = request;
    adapted.adapter = adapter;
    Received received;
    generator.submit(adapted, receiver(received));
    while (generator.step()) {
    }
    logprobs.push_back(received.logprobs);
  }
  EXPECT_NE(logprobs[0], logprobs[1]);
  EXPECT_NE(logprobs[1], logprobs[2]);
  EXPECT_EQ(logprobs[1], logprobs[3]);
  EXPECT_EQ(generator.counters().num_reused_tokens, 64);
  EXPECT_THAT(fault([&] { generator.submit({.prompt = {1}, .adapter = "frist"}, receiver(none_)); }),
              HasSubstr("there is no adapter 'frist'"));
}

TEST_F(Batching, RefusesAdaptersOfDifferentShape) {
  write_adapter("first", 8, 0.3F);
  write_adapter("second", 16, 0.4F);
  const auto fault_of = [&](const std::string& name, const std::string& folder) {
    BatchOptions options;
    options.adapters = {{"first", adapter_folder("first")}, {name, adapter_folder(folder)}};
    return fault([&] { open(options); });
  };
  EXPECT_THAT(fault_of("second", "second"), HasSubstr("rank 16 and scale 1 in"));
  EXPECT_THAT(fault_of("first", "first"), HasSubstr("two adapters have the name 'first'"));
}

TEST_F(Batching, GivesTheAnswersOfAGeneratorWithExperts) {
  write_model(R"(, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2)");
  expect_answers_of_generator({.tokens_per_slot = 200});
}

TEST_F(Batching, GivesTheAnswersOfAGeneratorWithLongrope) {
  write_model(R"(, "original_max_position_embeddings": 40, "rope_scaling": {"rope_type": "longrope",
"short_factor": [1, 1, 1, 1], "long_factor": [1, 3, 5, 7]})");
  expect_answers_of_generator({.tokens_per_slot = 200});
}

TEST_F(Batching, AnswersOnAGpuDoNotDependOnOtherRequests) {
  const BatchOptions options{
      .num_slots = 3,
      .tokens_per_slot = 100,
      .compute = {.gpu = exec::GpuRequest{.device = "emulated"}, .self_test = SelfTestMode::never}};
  BatchGenerator generator = open(options);
  const std::vector<GenerationRequest> requests = {
      {.prompt = numbers(70, 7), .options = {.max_tokens = 6}, .top_logprobs = 0},
      {.prompt = numbers(3, 9),
       .options = {.sampler = {.temperature = 1, .seed = 4}, .max_tokens = 9},
       .top_logprobs = 0},
      {.prompt = numbers(10, 11), .options = {.max_tokens = 4}, .top_logprobs = 0}};
  std::vector<Received> together(3), alone(3);
  for (size_t i = 0; i < 3; ++i) generator.submit(requests[i], receiver(together[i]));
  while (generator.step()) {
  }
  for (size_t i = 0; i < 3; ++i) {
    generator.submit(requests[i], receiver(alone[i]));
    while (generator.step()) {
    }
    EXPECT_EQ(together[i].ids, alone[i].ids);
    EXPECT_EQ(together[i].logprobs, alone[i].logprobs);
    EXPECT_FALSE(alone[i].ids.empty());
  }
}

TEST_F(Batching, ACancelledRequestFreesItsSlot) {
  BatchGenerator generator = open({.num_slots = 1, .tokens_per_slot = 200});
  Received by_id, waiting, by_emit, last;
  const GenerationRequest request{.prompt = numbers(100, 7), .options = {.max_tokens = 50}};
  const int64_t id = generator.submit(request, receiver(by_id));
  const int64_t waiting_id = generator.submit(request, receiver(waiting));
  generator.submit(request, receiver(by_emit, 3));
  generator.submit(request, receiver(last));
  for (int step = 0; step < 4; ++step) generator.step();
  EXPECT_EQ(by_id.ids.size(), 4u);
  generator.cancel(id);
  generator.cancel(waiting_id);
  EXPECT_EQ(generator.counters().num_active, 0);
  while (generator.step()) {
  }
  EXPECT_FALSE(by_id.finish);
  EXPECT_EQ(by_id.ids.size(), 4u);
  EXPECT_TRUE(waiting.ids.empty());
  EXPECT_EQ(by_emit.ids.size(), 3u);
  EXPECT_EQ(last.finish, FinishReason::length);
  EXPECT_EQ(last.ids, expected(request, {.tokens_per_slot = 200}).ids);
  EXPECT_EQ(generator.counters().num_cancelled, 3);
  EXPECT_EQ(generator.counters().num_finished, 1);
}

TEST_F(Batching, ReusesThePrefixOfTheBestSlotWithTheSameBits) {
  const BatchOptions options{.num_slots = 2, .tokens_per_slot = 300};
  BatchGenerator generator = open(options);
  const auto answer = [&](const std::vector<int32_t>& prompt, int64_t reused) {
    const int64_t before = generator.counters().num_reused_tokens;
    const GenerationRequest request{.prompt = prompt, .options = {.max_tokens = 5}, .top_logprobs = 0};
    Received found;
    generator.submit(request, receiver(found));
    while (generator.step()) {
    }
    EXPECT_EQ(generator.counters().num_reused_tokens - before, reused);
    const Received wanted = expected(request, options);
    EXPECT_EQ(found.ids, wanted.ids);
    EXPECT_EQ(found.logprobs, wanted.logprobs);
  };
  const std::vector<int32_t> first = numbers(200, 7), second = numbers(150, 11);
  answer(first, 0);
  answer(second, 0);
  answer(first, 192);
  answer(second, 128);
  std::vector<int32_t> changed = first;
  changed[130] = 1;
  answer(changed, 128);
  answer(numbers(128, 11), 64);
  answer(numbers(10, 13), 0);
}

TEST_F(Batching, EndsBeforeAStopText) {
  GenerationRequest request{.prompt = numbers(9, 7),
                            .options = {.sampler = {.temperature = 2, .seed = 1}, .max_tokens = 60}};
  Received all;
  BatchGenerator generator = open({.num_slots = 2, .tokens_per_slot = 200});
  generator.submit(request, receiver(all));
  while (generator.step()) {
  }
  ASSERT_GT(all.text.size(), 20u);
  const std::string stop = all.text.substr(10, 3);
  request.options.stop = {"no such text", stop};
  Received stopped;
  generator.submit(request, receiver(stopped));
  while (generator.step()) {
  }
  EXPECT_EQ(stopped.text, all.text.substr(0, all.text.find(stop)));
  EXPECT_EQ(stopped.finish, FinishReason::stop);
}

TEST_F(Batching, ReportsTheLikeliestTokens) {
  const GenerationRequest request{.prompt = numbers(3, 7), .options = {.max_tokens = 1}, .top_logprobs = 4};
  Received found;
  BatchGenerator generator = open({.num_slots = 1, .tokens_per_slot = 20});
  generator.submit(request, receiver(found));
  while (generator.step()) {
  }
  ASSERT_EQ(found.top.size(), 1u);
  ASSERT_EQ(found.top[0].size(), 4u);
  EXPECT_EQ(found.top[0][0].id, found.ids[0]);
  EXPECT_EQ(found.top[0][0].logprob, found.logprobs[0]);
  Generator alone = open_generator("", {.tokens_per_slot = 20});
  const std::span<const float> logits = alone.feed(request.prompt);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  for (const TokenLogprob& token : found.top[0])
    EXPECT_NEAR(token.logprob, logits[static_cast<size_t>(token.id)] - std::log(sum), 1e-9);
  EXPECT_TRUE(std::ranges::is_sorted(found.top[0], std::greater<>(), &TokenLogprob::logprob));
}

TEST_F(Batching, RefusesWhatDoesNotFit) {
  BatchGenerator generator = open({.num_slots = 1, .tokens_per_slot = 4});
  const auto fault_of = [&](const std::vector<int32_t>& prompt) {
    return fault([&] { generator.submit({.prompt = prompt}, [](const GeneratedPiece&) { return true; }); });
  };
  EXPECT_THAT(fault_of({}), HasSubstr("no tokens"));
  EXPECT_THAT(fault_of({1, 2, 3, 4, 5}), HasSubstr("a slot holds 4"));
  EXPECT_THAT(fault_of({100}), HasSubstr("token id 100 is out of range; the model has ids 0 to 99"));
  EXPECT_EQ(fault_of({1, 2, 3, 4}), "");
}

TEST_F(Batching, PlansItsMemory) {
  const BatchOptions options{.num_slots = 3, .tokens_per_slot = 64};
  const DecoderMemory plan = plan_batch(hub::find_model(folder_.path()), options);
  // Two layers, keys and values, 8 floats each, and padding.
  constexpr int64_t kBytes = 2 * 2 * 3 * 64 * 8 * 4;
  EXPECT_TRUE(plan.cache >= kBytes && plan.cache < kBytes + 1024) << plan.cache;
  const DecoderMemory memory = open(options).memory();
  EXPECT_EQ(memory.cache, plan.cache);
  EXPECT_EQ(memory.weights, plan.weights);
  check_fits(plan, options, plan.total());
  EXPECT_THAT(fault([&] { check_fits(plan, options, plan.total() - 1); }),
              HasSubstr("use --slots 2 or a shorter --context"));
  EXPECT_THAT(fault([&] { check_fits(plan, options, plan.weights); }), HasSubstr("use a smaller model"));
}

}  // namespace
}  // namespace hearth::infer
