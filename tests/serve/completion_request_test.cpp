#include "serve/completion_request.h"

#include <gmock/gmock.h>

#include "base/error.h"

namespace hearth::serve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(CompletionRequest, HasDefaultsOfOpenAi) {
  const CompletionRequest request = parse_completion(R"({"prompt": "a", "unknown": 1})", false, 7);
  EXPECT_EQ(std::get<std::string>(request.prompt), "a");
  EXPECT_EQ(request.options.sampler.temperature, 1);
  EXPECT_EQ(request.options.sampler.seed, 7u);
  EXPECT_EQ(request.options.max_tokens, 0);
  EXPECT_EQ(request.top_logprobs, -1);
  EXPECT_FALSE(request.streams);
}

TEST(CompletionRequest, ReadsAllFields) {
  const CompletionRequest request = parse_completion(R"({"model": "m", "prompt": [3, 4], "max_tokens": 5,
    "temperature": 0.5, "top_p": 0.9, "top_k": -1, "min_p": 0.1, "seed": -2, "stop": "x", "presence_penalty": 1,
    "frequency_penalty": -1, "repetition_penalty": 1.1, "logit_bias": {"7": -100}, "logprobs": 2, "stream": true,
    "stream_options": {"include_usage": true}, "n": 1, "tools": [], "response_format": {"type": "text"}})",
                                                     false, 0);
  EXPECT_THAT(std::get<std::vector<int32_t>>(request.prompt), ElementsAre(3, 4));
  const infer::SamplerOptions& sampler = request.options.sampler;
  EXPECT_EQ(sampler.top_k, 0);
  EXPECT_EQ(sampler.min_p, 0.1);
  EXPECT_EQ(sampler.seed, static_cast<uint64_t>(-2));
  EXPECT_EQ(sampler.frequency_penalty, -1);
  EXPECT_THAT(sampler.logit_bias, ElementsAre(Pair(7, -100)));
  EXPECT_THAT(request.options.stop, ElementsAre("x"));
  EXPECT_EQ(request.top_logprobs, 2);
  EXPECT_TRUE(request.streams && request.includes_usage);
}

TEST(CompletionRequest, JoinsTextParts) {
  const CompletionRequest request = parse_completion(
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                       {"role": "assistant", "content": null}], "logprobs": true})",
      true, 0);
  EXPECT_EQ(request.messages.dump(), R"([{"role":"user","content":"ab"},{"role":"assistant","content":""}])");
  EXPECT_EQ(request.top_logprobs, 0);
}

TEST(CompletionRequest, NamesWrongFields) {
  for (const auto& [field, value] :
       std::vector<std::pair<std::string, std::string>>{{"n", "2"},
                                                        {"best_of", "3"},
                                                        {"echo", "true"},
                                                        {"suffix", "\"a\""},
                                                        {"tools", "[1]"},
                                                        {"response_format", R"({"type": "json_schema"})"},
                                                        {"temperature", "-0.1"},
                                                        {"temperature", "true"},
                                                        {"top_p", "1.5"},
                                                        {"max_tokens", "0"},
                                                        {"max_tokens", "1.5"},
                                                        {"max_tokens", "99999999999999999999"},
                                                        {"seed", "18446744073709551615"},
                                                        {"stop", "[\"\"]"},
                                                        {"stop", "5"},
                                                        {"logit_bias", R"({"x": 1})"},
                                                        {"logit_bias", R"({"1": 101})"},
                                                        {"logprobs", "21"},
                                                        {"stream", "1"},
                                                        {"stream_options", "1"},
                                                        {"prompt", R"(["a", "b"])"},
                                                        {"prompt", "[-1]"},
                                                        {"model", "1"}}) {
    const std::string prompt = field == "prompt" ? "" : R"("prompt": "a", )";
    const std::string body = "{" + prompt + "\"" + field + "\": " + value + "}";
    EXPECT_THAT([&] { parse_completion(body, false, 0); },
                testing::ThrowsMessage<UserError>(HasSubstr(field)))
        << body;
  }
}

TEST(CompletionRequest, RefusesOtherBodies) {
  for (const char* body : {"", "[]", "{", "{}", R"({"prompt": 1})", R"({"messages": []})",
                           R"({"messages": [1]})", R"({"messages": [{"content": "a"}]})",
                           R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})"}) {
    EXPECT_THROW(parse_completion(body, true, 0), UserError) << body;
    EXPECT_THROW(parse_completion(body, false, 0), UserError) << body;
  }
}

}  // namespace
}  // namespace hearth::serve
