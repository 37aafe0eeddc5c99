#include <unistd.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "planner/long_wait.h"
#include "run/from_recipe.h"
#include "run/image_session.h"
#include "run/open_text_session.h"

namespace hearth::cli {
namespace {

constexpr int64_t kMaxTokens = int64_t{1} << 20;
/// Solver names on the command line, in the order of the enum tasks::Solver.
const std::vector<std::string> kSolvers = {"euler", "ddim", "dpm"};

struct ImageOptions {
  run::ImageRequest request;
  std::string size, solver, adapter, out = "picture.png";
  double guidance = 0;
};

struct GenerateArguments {
  std::string model, base;
  std::string prompt;
  std::string prompt_file;
  infer::AnswerOptions answer;
  int64_t context = 0;
  int threads = 0;
  bool chat = false;
  bool tokens = false;
  bool json = false, requests = false;
  ImageOptions image_options;
};

/// Parses an image size in pixels: "1024x768" (width x height), or "1024" for a square.
Extent size_of(const std::string& text) {
  int64_t width = 0, height = 0;
  char end = 0;
  const int found = std::sscanf(text.c_str(), "%ldx%ld%c", &width, &height, &end);
  if (found == 1 && text.find_first_not_of("0123456789") == text.npos) height = width;
  constexpr int64_t kMaxSide = 8192;
  if (found > 2 || width < 1 || height < 1 || width > kMaxSide || height > kMaxSide)
    user_error("expected --size like 1024x768, sides up to {}, got '{}'", kMaxSide, text);
  return {height, width};
}

/// Returns the name of output file `number`: `out` itself if there is one image, otherwise image-1.png and so
/// on.
fs::path file_of(const std::string& out, size_t number, size_t count) {
  if (count == 1) return out;
  const fs::path path(out);
  return path.parent_path() /
         fmt::format("{}-{}{}", path.stem().string(), number + 1, path.extension().string());
}

/// Returns true if the extension is .jpg or .jpeg, false if it is .png; throws a UserError for any other.
bool is_jpeg(const fs::path& file) {
  const std::string ending = lowered(file.extension().string());
  if (ending != ".png" && ending != ".jpg" && ending != ".jpeg")
    user_error("expected --out NAME.png or NAME.jpg, got '{}'", file.string());
  return ending != ".png";
}

/// Inserts "key: value" lines into a JPEG file as a comment segment, after the JFIF header.
std::string with_comment(std::string jpeg, const std::vector<std::pair<std::string, std::string>>& texts) {
  constexpr size_t kCommentOffset = 2 + 2 + 16, kMaxBytes = 65'533;
  std::string comment;
  for (const auto& [key, value] : texts) comment += fmt::format("{}: {}\n", key, value);
  comment.resize(std::min(comment.size(), kMaxBytes));
  const size_t length = comment.size() + 2;
  const std::string head = {'\xff', '\xfe', static_cast<char>(length >> 8), static_cast<char>(length & 0xFF)};
  return jpeg.insert(kCommentOffset, head + comment);
}

std::string encoded(const run::GeneratedImage& generated, bool as_jpeg) {
  constexpr int kQuality = 95;
  if (as_jpeg)
    return with_comment(data::encode_jpeg(data::convert(generated.image, 3), kQuality), generated.settings);
  return data::with_texts(data::encode_png(generated.image), generated.settings);
}

void generate_images(const CLI::App& verb, const GenerateArguments& arguments) {
  for (const char* option :
       {"--prompt-file", "--chat", "--max-tokens", "--temperature", "--top-k", "--top-p",
        "--repetition-penalty", "--stop", "--context", "--tokens", "--base", "--requests"}) {
    if (verb.count(option) > 0)
      user_error("{} is for language models, but '{}' generates images", option, arguments.model);
  }
  if (verb.count("--prompt") == 0) user_error("--prompt, the description of the image, is missing");
  const ImageOptions& image_options = arguments.image_options;
  const bool as_jpeg = is_jpeg(image_options.out);
  run::ImageRequest request = image_options.request;
  request.prompt = arguments.prompt;
  request.seed = arguments.answer.sampler.seed;
  if (verb.count("--guidance") > 0) request.guidance = image_options.guidance;
  if (!image_options.solver.empty())
    request.solver =
        static_cast<tasks::Solver>(std::ranges::find(kSolvers, image_options.solver) - kSolvers.begin());
  run::ImageSessionOptions options{.overrides = overrides_of(verb),
                                   .adapter = image_options.adapter,
                                   .batch = request.count,
                                   .threads = arguments.threads,
                                   .keep_denoiser = false};
  if (!image_options.size.empty()) options.size = size_of(image_options.size);
  const auto made = run::ImageSession(arguments.model, std::move(options)).generate(request);
  if (!made.empty() && !made[0].note.empty()) say(stderr, "note: {}\n", made[0].note);
  Json images = Json::array();
  for (size_t i = 0; i < made.size(); ++i) {
    const fs::path file = file_of(image_options.out, i, made.size());
    write_file_atomically(file, encoded(made[i], as_jpeg));
    if (!arguments.json) say("{}\n", file.string());
    Json image = {{"file", file.string()}};
    for (const auto& [name, value] : made[i].settings) image[name] = value;
    images.push_back(image);
  }
  if (arguments.json) print_json({{"images", images}});
}

std::string prompt_of(const CLI::App& verb, const GenerateArguments& arguments) {
  if (verb.count("--prompt") > 0) return arguments.prompt;
  if (!arguments.prompt_file.empty()) return read_file(arguments.prompt_file);
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

std::vector<int32_t> numbers_in(const std::string& text) {
  std::istringstream in(text);
  std::vector<int32_t> ids;
  for (int32_t id = 0; in >> id;) ids.push_back(id);
  if (!in.eof())
    user_error("--tokens needs a prompt of token ids such as '1 15043 3186', but the prompt is '{}'", text);
  return ids;
}

std::vector<int32_t> prompt_ids(infer::TextSession& session, const GenerateArguments& arguments,
                                const std::string& prompt) {
  std::vector<int32_t> ids = arguments.tokens ? numbers_in(prompt)
                             : arguments.chat ? session.chat_prompt({{{"role", "user"}, {"content", prompt}}})
                                              : session.text_prompt(prompt);
  if (ids.empty()) user_error("expected a prompt, got none; try --prompt TEXT");
  return ids;
}

Json json_of(const infer::Answer& answer, size_t num_prompt_tokens) {
  return {{"text", answer.text},
          {"ids", answer.ids},
          {"prompt_tokens", num_prompt_tokens},
          {"finish_reason", answer.ended ? "stop" : "length"}};
}

/// Replaces `value` by that of a request, if it has one. Throws a UserError if it is out of range.
template <typename T>
void take_number(const Json& request, const char* key, double min, double max, T& value) {
  if (!request.contains(key)) return;
  const auto number = request[key].get<double>();
  if (!(number >= min && number <= max))
    user_error("expected {} to {} for {}, got {}", min, max, key, number);
  value = request[key].get<T>();
}

/// Answers a request: prompt or messages; optional max_tokens, temperature, top_k, top_p, repetition_penalty,
/// stop and seed, whose defaults are the flags.
Json answer_request(infer::TextSession& session, infer::AnswerOptions options, const Json& request) {
  infer::SamplerOptions& sampler = options.sampler;
  take_number(request, "max_tokens", 1, kMaxTokens, options.max_tokens);
  take_number(request, "temperature", 0, 100, sampler.temperature);
  take_number(request, "top_k", 0, 0x1p31, sampler.top_k);
  take_number(request, "top_p", 0, 1, sampler.top_p);
  take_number(request, "repetition_penalty", 0.01, 100, sampler.repetition_penalty);
  take_number(request, "seed", 0, 0x1p63, sampler.seed);
  if (request.contains("stop")) options.stop = request["stop"].get<std::vector<std::string>>();
  if (std::ranges::find(options.stop, "") != options.stop.end())
    user_error("expected texts for stop, got an empty one");
  const auto prompt = request.contains("messages")
                          ? session.chat_prompt(request["messages"])
                          : session.text_prompt(request.at("prompt").get<std::string>());
  if (prompt.empty())
    user_error("the prompt is empty, and the model has no BOS token; send a prompt with text");
  return json_of(session.ask(prompt, options, [](std::string_view) {}), prompt.size());
}

void run_generate(const CLI::App& verb, const GenerateArguments& arguments) {
  using Clock = std::chrono::steady_clock;
  const std::optional<recipe::Recipe> trained = run::recipe_of_run(arguments.model);
  if (run::generates_images(arguments.model, trained)) return generate_images(verb, arguments);
  infer::TextSession session = run::open_text_session(
      arguments.model, trained, arguments.base,
      {.generator = {.slots = arguments.context,
                     .compute = {.num_threads =
                                     arguments.threads > 0 ? arguments.threads : num_available_cpus()}},
       .has_tokenizer = !arguments.tokens},
      overrides_of(verb));
  if (arguments.requests) {
    return answer_requests(
        [&](const Json& request) { return answer_request(session, arguments.answer, request); });
  }
  const auto prompt = prompt_ids(session, arguments, prompt_of(verb, arguments));
  const infer::Generator& generator = session.open(prompt.size(), arguments.answer.max_tokens);
  const auto start = Clock::now();
  const std::string wait = planner::long_wait(fmt::format("reading the prompt of {} tokens", prompt.size()),
                                              generator.prompt_seconds(std::ssize(prompt)));
  if (!wait.empty()) say(stderr, "{}\n", wait);
  const bool is_terminal = isatty(STDOUT_FILENO) != 0;
  const auto print = [&](std::string_view piece) {
    if (arguments.json) return;
    const std::string text = is_terminal ? printable(piece) : std::string(piece);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  const infer::Answer answer = session.ask(prompt, arguments.answer, print);
  const std::chrono::duration<double> took = Clock::now() - start;
  if (arguments.json) {
    Json json = json_of(answer, prompt.size());
    json["seconds"] = took.count();
    json["weights"] = session.model().named_weights().string();
    return print_json(json);
  }
  if (arguments.tokens) say("{}", fmt::join(answer.ids, " "));
  print("\n");
  say(stderr, "{} tokens after a prompt of {}, {:.1f} tokens/s{}\n", answer.ids.size(), prompt.size(),
      static_cast<double>(answer.ids.size()) / took.count(),
      answer.ended ? "" : "; cut off by --max-tokens or --context");
  say(stderr, "weights: {}\n", session.model().named_weights().string());
  const auto note = models::context_note(generator.config(), std::ssize(generator.tokens()));
  if (!note.empty()) say(stderr, "{}\n", note);
}

void add_image_options(CLI::App& verb, ImageOptions& image_options) {
  const char* group = "Image generation";
  verb.add_option("--size", image_options.size,
                  "Image size WIDTHxHEIGHT in pixels (default: training size, or 1024x1024)")
      ->group(group);
  verb.add_option("--steps", image_options.request.steps,
                  "Sampling steps; 0: as in the evaluations of the run, or 20")
      ->check(CLI::Range(int64_t{0}, int64_t{1000}).description("0 to 1000"))
      ->group(group);
  verb.add_option("--guidance", image_options.guidance,
                  "Guidance scale; higher values follow the prompt more closely (default: as in the "
                  "evaluations of the run, or 3.5)")
      ->check(CLI::Range(0.0, 100.0).description("0 to 100"))
      ->group(group);
  verb.add_option("--count", image_options.request.count,
                  "Number of images, with seeds --seed, --seed + 1 and so on")
      ->check(CLI::Range(int64_t{1}, int64_t{10000}).description("1 to 10000"))
      ->capture_default_str()
      ->group(group);
  verb.add_option("--adapter", image_options.adapter, "LoRA: run folder, adapter folder or file")
      ->group(group);
  verb.add_option("--out", image_options.out, "Output file: NAME.png or NAME.jpg")
      ->capture_default_str()
      ->group(group);
  verb.add_option("--solver", image_options.solver,
                  "Solver: euler (for flow), ddim or dpm (for epsilon and v)")
      ->check(CLI::IsMember(kSolvers))
      ->group(group);
}

}  // namespace

void add_generate(CLI::App& app) {
  const auto arguments = std::make_shared<GenerateArguments>();
  CLI::App* verb = app.add_subcommand(
      "generate",
      "Continue a text or answer a question with a language model, or generate images from a prompt");
  verb->add_option("model", arguments->model,
                   "Model folder, run folder (best weights, or last ones if it has no best), or adapter")
      ->required();
  verb->add_option("--base", arguments->base,
                   "Base model of an adapter (default: the one in adapter_config.json)");
  verb->add_option("-p,--prompt", arguments->prompt,
                   "Text to continue, or description of the image (default: read from standard input)");
  verb->add_option("--prompt-file", arguments->prompt_file, "File with the text to continue");
  verb->add_flag("--chat", arguments->chat, "Send the text as a user message in the model's chat template");
  infer::AnswerOptions& answer = arguments->answer;
  verb->add_option("-n,--max-tokens", answer.max_tokens, "Max tokens of the answer")
      ->check(CLI::Range(int64_t{1}, kMaxTokens).description("1 to 1048576"))
      ->capture_default_str();
  verb->add_option("--temperature", answer.sampler.temperature, "Sampling temperature; 0: greedy")
      ->check(CLI::Range(0.0, 100.0).description("0 to 100"))
      ->capture_default_str();
  verb->add_option("--top-k", answer.sampler.top_k, "Number of most likely tokens to sample from; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_option("--top-p", answer.sampler.top_p,
                   "Sample from the most likely tokens whose probabilities add up to this")
      ->check(CLI::Range(0.0, 1.0).description("0 to 1"))
      ->capture_default_str();
  verb->add_option("--repetition-penalty", answer.sampler.repetition_penalty,
                   "Repetition penalty; values above 1 reduce repetition")
      ->check(CLI::Range(0.01, 100.0).description("0.01 to 100"))
      ->capture_default_str();
  verb->add_option("--stop", answer.stop, "Stop text: the answer ends before it; may be given several times")
      ->check(
          [](const std::string& stop) { return stop.empty() ? "expected a text, got an empty one" : ""; });
  verb->add_option("--seed", answer.sampler.seed, "Seed of sampling")->capture_default_str();
  verb->add_option("--context", arguments->context,
                   "Size of the KV cache: max tokens of prompt and answer together; 0: as many as needed")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24).description("0 to 16777216"))
      ->capture_default_str();
  verb->add_option("--threads", arguments->threads, "CPU threads; 0: all cores")
      ->check(CLI::Range(0, 1024).description("0 to 1024"))
      ->capture_default_str();
  verb->add_flag("--tokens", arguments->tokens,
                 "Read and print token ids instead of text, without a tokenizer");
  add_json(*verb, arguments->json);
  add_requests(*verb, arguments->requests, "\"prompt\" or \"messages\"");
  add_image_options(*verb, arguments->image_options);
  allow_overrides(*verb);
  set_example(*verb, "hearth generate MODEL --prompt \"Once upon a time\"");
  verb->callback([=] { run_generate(*verb, *arguments); });
}

}  // namespace hearth::cli
