#include "hub/gguf_model.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/gguf_cache.h"
#include "base/run_files.h"
#include "hub/export_gguf.h"
#include "hub/weights.h"
#include "infer/generator.h"
#include "shared_data.h"
#include "tasks/language/language_model.h"
#include "temporary_folder.h"
#include "text/chat.h"
#include "text/formats.h"
#include "text/ggml_vocabulary.h"
#include "text/tokenizer.h"

namespace hearth::hub {
namespace {

using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::ordered_json;

/// A tokenizer of bytes and one merge.
std::string byte_tokenizer() {
  std::string vocab;
  for (int byte = 0, more = 256; byte < 256; ++byte) {
    const bool plain = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    vocab += fmt::format("{}\"\\u{:04x}\": {}", byte == 0 ? "" : ", ", plain ? byte : more++, byte);
  }
  return fmt::format(R"({{"added_tokens": [{{"id": 257, "content": "</s>", "special": true}},
{{"id": 258, "content": "<t>"}}], "pre_tokenizer": {{"type": "ByteLevel", "add_prefix_space": false,
"use_regex": true}}, "decoder": {{"type": "ByteLevel"}},
"model": {{"type": "BPE", "vocab": {{{}, "ab": 256}}, "merges": ["a b"]}}}})",
                     vocab);
}

Json base_config(const std::string& family) {
  return {{"model_type", family},
          {"vocab_size", 260},
          {"hidden_size", 16},
          {"intermediate_size", 24},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"head_dim", 8},
          {"max_position_embeddings", 96},
          {"rms_norm_eps", 1e-5},
          {"initializer_range", 0.2},
          {"rope_theta", 5000.0},
          {"tie_word_embeddings", false},
          {"eos_token_id", 257}};
}

class GgufModel : public testing::Test {
 protected:
  GgufModel() { setenv("XDG_CACHE_HOME", at("cache").c_str(), 1); }
  ~GgufModel() override { unsetenv("XDG_CACHE_HOME"); }

  fs::path at(const std::string& name) const { return folder_.path() / name; }

  /// Writes a model of random weights as a folder and as m.gguf in f32.
  void write(const Json& config) const {
    fs::create_directories(at("model"));
    write_file_atomically(at("model/config.json"), config.dump());
    write_file_atomically(at("model/tokenizer.json"), byte_tokenizer());
    write_file_atomically(at("model/tokenizer_config.json"), R"({"eos_token": "</s>"})");
    write_file_atomically(at("model/chat_template.jinja"), "{{ messages[0]['content'] }}");
    constexpr int64_t kOneRow[] = {1};
    engine::Engine engine(
        {.objective = tasks::language_model(
             {.config = models::parse_decoder_config(config.dump(), "test"), .context = 8})},
        {}, kOneRow);
    engine.initialize();
    save_weights(engine, at("model/model.safetensors"), false);
    export_gguf(find_model(at("model")), {.out = at("m.gguf"), .type = io::GgufType::f32});
  }

  std::vector<float> logits(const std::string& model) const {
    infer::Generator made(find_model(at(model)), {.slots = 96, .compute = {.num_threads = 1}});
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 20; ++i) ids.push_back(i * 5 % 260);
    const std::span<const float> found = made.feed(ids);
    return {found.begin(), found.end()};
  }

  std::string error_of(FunctionRef<void()> body) const {
    try {
      body();
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  }

  TemporaryFolder folder_;
};

/// Families and settings that the exporter writes.
std::vector<std::pair<std::string, Json>> families() {
  const auto with = [](const std::string& family, const Json& more) {
    Json config = base_config(family);
    config.update(more);
    return config;
  };
  const Json longrope = {
      {"type", "longrope"}, {"short_factor", {1.0, 1.5, 2.0, 3.0}}, {"long_factor", {1.0, 2.0, 4.1, 8.0}}};
  Json llama3 = {{"rope_type", "llama3"},
                 {"factor", 4.0},
                 {"low_freq_factor", 1.0},
                 {"high_freq_factor", 4.0},
                 {"original_max_position_embeddings", 8192}};
  Json other = llama3;
  other["original_max_position_embeddings"] = 16;
  return {
      {"llama", with("llama", {{"attention_bias", true}})},
      {"llama tied", with("llama", {{"tie_word_embeddings", true}, {"mlp_bias", true}})},
      {"llama linear", with("llama", {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.5}}}})},
      {"llama 3.1", with("llama", {{"rope_theta", 500000.0}, {"rope_scaling", llama3}})},
      {"llama 3.1 of other settings", with("llama", {{"rope_scaling", other}})},
      {"mistral", with("mistral", {{"sliding_window", 7}})},
      {"qwen2", base_config("qwen2")},
      {"qwen3", base_config("qwen3")},
      {"phi3", with("phi3", {{"partial_rotary_factor", 0.5}})},
      {"phi3 longrope", with("phi3", {{"rope_scaling", longrope}, {"original_max_position_embeddings", 16}})},
      {"gemma2", with("gemma2", {{"query_pre_attn_scalar", 8},
                                 {"sliding_window", 7},
                                 {"tie_word_embeddings", true},
                                 {"final_logit_softcapping", 3.5}})}};
}

TEST_F(GgufModel, ComputesAsTheModelThatWasExported) {
  for (const auto& [name, config] : families()) {
    SCOPED_TRACE(name);
    write(config);
    const std::vector<float> wanted = logits("model"), found = logits("m.gguf");
    ASSERT_EQ(found.size(), wanted.size());
    // Gemma's norms are stored with 1 added, RoPE tables in f32: both round.
    const bool exact = name != "gemma2" && !name.starts_with("llama 3.1");
    for (size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(found[i], wanted[i], exact ? 0 : 2e-5) << i;
  }
}

TEST_F(GgufModel, ConfigIsThatOfTheModel) {
  for (const auto& [name, config] : families()) {
    SCOPED_TRACE(name);
    write(config);
    const Json read = Json::parse(gguf_config_json(io::GgufFile(at("m.gguf"))));
    for (const auto& [key, value] : config.items()) {
      if (key == "initializer_range" || (key == "rope_scaling" && name == "llama 3.1 of other settings"))
        continue;
      EXPECT_EQ(read.at(key), value) << key;
    }
  }
}

TEST_F(GgufModel, UnpacksTokenizerAndTemplateOnce) {
  write(base_config("llama"));
  const ModelFolder model = find_model(at("m.gguf"));
  EXPECT_EQ(model.weights, at("m.gguf"));
  EXPECT_EQ(model.model, config_folder(at("m.gguf")));
  const auto made = text::open_tokenizer(model.text), wanted = text::open_tokenizer(at("model"));
  std::vector<int32_t> a, b;
  made->encode("cab </s><t> \xC3\xA4", text::SpecialTokens::parsed, a);
  wanted->encode("cab </s><t> \xC3\xA4", text::SpecialTokens::parsed, b);
  EXPECT_EQ(a, b);
  EXPECT_EQ(made->eos(), wanted->eos());
  EXPECT_EQ(made->decode(a), wanted->decode(b));
  EXPECT_EQ(text::read_chat_setup(model.text).chat_template, "{{ messages[0]['content'] }}");
  const auto time = fs::last_write_time(model.model / kModelConfig);
  EXPECT_EQ(unpack_gguf(at("m.gguf")), model.model);
  EXPECT_EQ(fs::last_write_time(model.model / kModelConfig), time);
  EXPECT_EQ(unpack_gguf(at("model")), at("model"));
}

TEST_F(GgufModel, MissingAndOtherFilesAreRefused) {
  write_file_atomically(at("other.gguf"), "version https://example.org");
  for (const char* name : {"none.gguf", "other.gguf"})
    EXPECT_THAT(error_of([&] { unpack_gguf(at(name)); }), HasSubstr("is not a GGUF file")) << name;
}

/// Writes m.gguf again with other metadata and tensors.
void rewrite(const fs::path& path,
             FunctionRef<void(io::GgufMetadata&, std::vector<io::GgufTensor>&)> change) {
  io::GgufMetadata metadata = {
      {"general.architecture", std::string("llama")},   {"llama.block_count", uint32_t{1}},
      {"llama.context_length", uint32_t{64}},           {"llama.embedding_length", uint32_t{4}},
      {"llama.feed_forward_length", uint32_t{4}},       {"llama.attention.head_count", uint32_t{1}},
      {"llama.attention.layer_norm_rms_epsilon", 1e-5F}};
  std::vector<io::GgufTensor> tensors;
  const auto add = [&](const std::string& name, Shape shape) { tensors.push_back({name, {}, shape}); };
  add("token_embd.weight", {8, 4});
  for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
    add(fmt::format("blk.0.{}.weight", name), {4, 4});
  for (const char* name : {"blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"})
    add(fmt::format("{}.weight", name), {4});
  change(metadata, tensors);
  const std::vector<float> zeros(64);
  io::write_gguf(path, metadata, tensors, [&](size_t i) {
    return std::as_bytes(std::span(zeros)).first(static_cast<size_t>(tensors[i].num_bytes()));
  });
}

TEST_F(GgufModel, FilesThatAreNotSupportedAreRefusedByName) {
  using Metadata = io::GgufMetadata;
  using Tensors = std::vector<io::GgufTensor>;
  const auto error = [&](FunctionRef<void(Metadata&, Tensors&)> change) {
    rewrite(at("m.gguf"), change);
    return error_of([&] {
      io::WeightFiles files(at("m.gguf"));
      show_gguf(files);
    });
  };
  EXPECT_EQ(error([](Metadata&, Tensors&) {}), "no error");
  EXPECT_THAT(
      error([](Metadata& keys, Tensors&) { keys[0].second = std::string("mamba"); }),
      testing::AllOf(HasSubstr("architecture 'mamba'"), HasSubstr("phi3"), Not(HasSubstr("mistral"))));
  EXPECT_THAT(error([](Metadata& keys, Tensors&) { keys.emplace_back("llama.expert_count", uint32_t{8}); }),
              HasSubstr("mixture of experts"));
  EXPECT_THAT(
      error([](Metadata& keys, Tensors&) { keys.emplace_back("general.type", std::string("adapter")); }),
      HasSubstr("the file is a GGUF adapter, not a model"));
  EXPECT_THAT(error([](Metadata& keys, Tensors&) {
                keys.emplace_back("llama.rope.scaling.type", std::string("yarn"));
              }),
              HasSubstr("RoPE scaling 'yarn'"));
  EXPECT_THAT(
      error([](Metadata& keys, Tensors&) { keys.emplace_back("llama.rope.dimension_count", uint32_t{2}); }),
      HasSubstr("RoPE on 2 of the 4 elements"));
  EXPECT_THAT(error([](Metadata& keys, Tensors&) { keys.erase(keys.begin() + 1); }),
              HasSubstr("lacks 'llama.block_count'"));
  EXPECT_THAT(error([](Metadata& keys, Tensors&) { keys[1].second = 1.0F; }),
              HasSubstr("'llama.block_count'"));
  EXPECT_THAT(error([](Metadata&, Tensors& tensors) { tensors.pop_back(); }),
              HasSubstr("'output_norm.weight' is missing"));
  EXPECT_THAT(error([](Metadata&, Tensors& tensors) {
                tensors[1].shape = {2, 4};
              }),
              HasSubstr("expected 'blk.0.attn_q.weight' with shape [4, 4], found [2, 4]"));
  EXPECT_THAT(error([](Metadata&, Tensors& tensors) {
                tensors.push_back({"blk.0.x", {}, {4}});
              }),
              HasSubstr("'blk.0.x' does not belong to the architecture"));
}

std::vector<std::string> texts_in(const fs::path& file) {
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  const std::string all = read_file(file);
  std::vector<std::string> texts;
  for (size_t from = 0; from < all.size();) {
    const size_t end = std::min(all.find(kSeparator, from), all.size());
    texts.push_back(all.substr(from, end - from));
    from = end + kSeparator.size();
  }
  return texts;
}

TEST(GgufVocabulary, TokenizesAsLlamaCpp) {
  HEARTH_SHARED_DATA(data, "tokenizers/llamacpp_vocab");
  for (const char* name : {"gpt-2", "llama-spm", "phi-3"}) {
    const fs::path file = data / fmt::format("ggml-vocab-{}.gguf", name);
    const std::string json = text::tokenizer_json(gguf_vocabulary(io::GgufFile(file)), name);
    const auto tokenizer = text::parse_tokenizer_json(json, name, {});
    const std::vector<std::string> texts = texts_in(file.string() + ".inp");
    std::istringstream lines(read_file(file.string() + ".out"));
    for (const std::string& one : texts) {
      std::string line;
      std::getline(lines, line);
      std::istringstream numbers(line);
      std::vector<int32_t> wanted, found;
      for (int32_t id = 0; numbers >> id;) wanted.push_back(id);
      tokenizer->encode(one, text::SpecialTokens::parsed, found);
      EXPECT_EQ(found, wanted) << name << ": '" << one << "'";
    }
    EXPECT_GT(texts.size(), 45U);
  }
}

TEST(GgufVocabulary, TokensOfPhi3ConsumeTheSpaceAfterThem) {
  HEARTH_SHARED_DATA(data, "tokenizers/llamacpp_vocab");
  text::GgmlVocabulary made = gguf_vocabulary(io::GgufFile(data / "ggml-vocab-phi-3.gguf"));
  EXPECT_TRUE(made.strips_right);
  std::vector<int32_t> found, plain;
  const auto encode = [&](std::vector<int32_t>& ids) {
    text::parse_tokenizer_json(text::tokenizer_json(made, "m.gguf"), "m.gguf", {})
        ->encode("<|user|>\n<s>a", text::SpecialTokens::parsed, ids);
  };
  encode(found);
  made.strips_right = false;
  encode(plain);
  EXPECT_LT(found.size(), plain.size());
}

TEST(GgufVocabulary, OtherTokenizersAreRefusedByName) {
  HEARTH_SHARED_DATA(data, "tokenizers/llamacpp_vocab");
  const auto error = [](const text::GgmlVocabulary& vocabulary) {
    try {
      text::tokenizer_json(vocabulary, "m.gguf");
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(error(gguf_vocabulary(io::GgufFile(data / "ggml-vocab-bert-bge.gguf"))),
              HasSubstr("tokenizer model 'bert' is not supported"));
  text::GgmlVocabulary made = gguf_vocabulary(io::GgufFile(data / "ggml-vocab-gpt-2.gguf"));
  made.pre = "falcon";
  EXPECT_THAT(error(made), HasSubstr("pre-tokenizer 'falcon'"));
  made.pre = "gpt-2";
  made.kinds.pop_back();
  EXPECT_THAT(error(made), HasSubstr("50257 tokens, but 50256 token types"));
  made.kinds.push_back(text::GgmlVocabulary::Kind::normal);
  made.bos = 60000;
  EXPECT_THAT(error(made), HasSubstr("has the id 60000"));
}

}  // namespace
}  // namespace hearth::hub
