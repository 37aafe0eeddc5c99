#include <chrono>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/foreign.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "hub/gguf_model.h"
#include "text/tokenizer.h"

namespace hearth::cli {
namespace {

struct TextArguments {
  std::string folder;
  std::vector<std::string> files;
  std::string text;
  bool special = false;
  bool json = false;
};

text::SpecialTokens special_of(const TextArguments& arguments) {
  return arguments.special ? text::SpecialTokens::parsed : text::SpecialTokens::as_text;
}

void print_tokens(const text::Tokenizer& tokenizer, const TextArguments& arguments, const std::string& text) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, special_of(arguments), ids);
  if (arguments.json) {
    Json tokens = Json::array();
    for (const int32_t id : ids) tokens.push_back({{"id", id}, {"text", tokenizer.token(id)}});
    return print_json({{"tokens", tokens}});
  }
  for (const int32_t id : ids) say("{:8}  {}\n", id, printable(tokenizer.token(id), false));
}

struct Count {
  int64_t tokens = 0;
  int64_t bytes = 0;
  double seconds = 0;
};

void print_count(const std::string& name, const Count& count) {
  const double megabytes = static_cast<double>(count.bytes) * 1e-6;
  say("{}: {} tokens, {} bytes, {:.2f} bytes per token, {:.0f} MB/min\n", name, count.tokens, count.bytes,
      static_cast<double>(count.bytes) / static_cast<double>(std::max<int64_t>(count.tokens, 1)),
      60 * megabytes / std::max(count.seconds, 1e-9));
}

void count_files(const text::Tokenizer& tokenizer, const TextArguments& arguments) {
  Count all;
  Json json = Json::array();
  std::vector<int32_t> ids;
  for (const std::string& file : arguments.files) {
    const std::string text = read_file(file);
    refuse_binary_data(text, file);
    ids.clear();
    const auto start = std::chrono::steady_clock::now();
    tokenizer.encode(text, special_of(arguments), ids);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    const Count count = {std::ssize(ids), std::ssize(text), took.count()};
    if (arguments.json) {
      json.push_back(
          {{"file", file}, {"tokens", count.tokens}, {"bytes", count.bytes}, {"seconds", count.seconds}});
    } else {
      print_count(file, count);
    }
    all = {all.tokens + count.tokens, all.bytes + count.bytes, all.seconds + count.seconds};
  }
  if (arguments.json) return print_json({{"files", json}});
  if (arguments.files.size() > 1) print_count("together", all);
}

void run_tokenize(const CLI::App& verb, const TextArguments& arguments) {
  const auto tokenizer = text::open_tokenizer(hub::unpack_gguf(arguments.folder));
  if (!arguments.files.empty()) return count_files(*tokenizer, arguments);
  const bool given = verb.count("--text") > 0;
  print_tokens(*tokenizer, arguments,
               given ? arguments.text : std::string(std::istreambuf_iterator<char>(std::cin), {}));
}

}  // namespace

void add_tokenize(CLI::App& app) {
  const auto arguments = std::make_shared<TextArguments>();
  CLI::App* verb = app.add_subcommand(
      "tokenize", "Print the tokens of a text, or count the tokens of files and measure the speed");
  verb->add_option("model", arguments->folder, "Model folder or tokenizer file")->required();
  verb->add_option("files", arguments->files, "Text files whose tokens are counted");
  verb->add_option("--text", arguments->text,
                   "Text whose tokens are printed (default: read from standard input)");
  verb->add_flag("--special", arguments->special,
                 "Parse special tokens in the text (default: as plain text)");
  add_json(*verb, arguments->json);
  set_example(*verb, "hearth tokenize MODEL --text \"Once upon a time\"");
  verb->callback([=] { run_tokenize(*verb, *arguments); });
}

}  // namespace hearth::cli
