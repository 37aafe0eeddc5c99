// Values in the JSON output of commands; tests/repo/docs checks its keys and types by the examples of
// docs/json.md.
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/program.h"

namespace hearth {
namespace {

using Json = nlohmann::ordered_json;

class JsonOutput : public Program {
 protected:
  /// Runs a command that prints one line of JSON and nothing else.
  Json json(const std::string& line) const {
    const std::string text = works(line);
    EXPECT_EQ(text.find('\n'), text.size() - 1) << text;
    return Json::parse(text);
  }
  /// Starts a server, reads its line of JSON, sends a request with the token to the port, and stops the
  /// server. Returns the line; the answer has to have status 200.
  Json server(const std::string& arguments, const std::string& path) const {
    put("ask.bash", fmt::format(R"('{}' {} --json >line 2>messages &
until [ -s line ] || ! kill -0 $!; do sleep 0.02; done
[[ $(<line) =~ '"port":'([0-9]+) ]] && port=${{BASH_REMATCH[1]}}
[[ $(<line) =~ '"token":"'([^\"]+) ]] && token=${{BASH_REMATCH[1]}}
exec 3<>/dev/tcp/127.0.0.1/$port
printf 'GET {} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n' $token >&3
read -r answer <&3
echo "$answer"
kill $!
wait $!
)",
                                kProgram, arguments, path));
    EXPECT_THAT(works("bash ask.bash"), testing::StartsWith("HTTP/1.1 200 "));
    EXPECT_EQ(count_of(get("line"), "\n"), 1U);
    Json line = Json::parse(get("line"));
    EXPECT_EQ(line.at("url"), fmt::format("http://127.0.0.1:{}/", line.at("port").get<int>()));
    return line;
  }
};

TEST_F(JsonOutput, CpNamesTheFileThatItWrites) {
  EXPECT_EQ(json("hearth cp demo mine.yaml --json"), Json({{"recipe", "demo"}, {"out", "mine.yaml"}}));
  EXPECT_TRUE(has("mine.yaml"));
  refused("hearth cp demo mine.yaml --json", {"mine.yaml exists already"});
}

TEST_F(JsonOutput, DumpHasTheTextOfTheGraph) {
  const Json dump = json("hearth dump tiny.yaml --after=backward --json");
  EXPECT_EQ(dump.at("after"), "backward");
  EXPECT_EQ(dump.at("graph"), works("hearth dump tiny.yaml --after=backward"));
  // The default is the last pass of the list.
  EXPECT_EQ(json("hearth dump tiny.yaml --json").at("after"),
            json("hearth dump --list --json").at("passes").back().at("name"));
}

TEST_F(JsonOutput, ImportListsEachKeyAlsoIfOneIsRefused) {
  put("a.yml",
      "base_model: model\nlearning_rate: 1\nmax_steps: 1\npeft_use_dora: true\n"
      "datasets: [{path: chat.jsonl, type: chat_template}]\n");
  const Result result = shell("hearth import a.yml --json");
  EXPECT_EQ(result.code, 1);
  const Json imported = Json::parse(result.out);
  EXPECT_EQ(imported.at("out"), "a-hearth.yaml");
  EXPECT_TRUE(has("a-hearth.yaml"));
  std::map<std::string, Json> keys;
  for (const Json& key : imported.at("keys")) keys[key.at("key")] = key;
  EXPECT_EQ(keys.at("peft_use_dora").at("fate"), "refused");
  EXPECT_EQ(keys.at("peft_use_dora").at("where"), "a.yml:4");
  EXPECT_EQ(keys.at("learning_rate").at("detail"), "optimizer.lr=1");
  refused("hearth import --keys --json", {"--keys", "--json"});
}

TEST_F(JsonOutput, UiPrintsItsAddressWhenItListens) {
  EXPECT_EQ(server("ui .", "/").at("runs"), ".");
  // The page of a training that prints JSON leaves standard output to it.
  const Result trained = shell("hearth train tiny.yaml --out run --ui train.steps=300 --json");
  EXPECT_EQ(Json::parse(trained.out).at("run"), "run");
  EXPECT_THAT(trained.err, testing::HasSubstr("live page of .: http://127.0.0.1:"));
}

TEST_F(JsonOutput, ServePrintsItsAddressAndTheKey) {
  works("hearth train tiny.yaml --out run");
  const Json line = server("serve run --port 0 --api-key secret", "/v1/models");
  EXPECT_EQ(line.at("model"), "run");
  EXPECT_EQ(line.at("token"), "secret");
}

TEST_F(JsonOutput, BenchReportAgreesWithItsTable) {
  const std::string report = "hearth bench report -m Llama-260K -s 32 -b 1 --steps 2 --threads 1 --out made ";
  for (const int num_devices : {1, 2}) {
    const Result result = shell(report + fmt::format("-n {} --json", num_devices));
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.err, get("made/Llama-260K-pretrain.log"));
    const Json printed = Json::parse(result.out);
    const std::string row =
        fmt::format("Llama-260K,{:.2f},tok_per_s_per_gpu,pretrain,BF16,1,32,cpu,{}\n",
                    printed.at("samples_per_second").get<double>(), printed.at("num_devices").get<int>());
    EXPECT_THAT(get("made/perf_Llama-260K.csv"), testing::HasSubstr(row));
    EXPECT_EQ(printed.at("num_devices"), num_devices);
    EXPECT_TRUE(printed.at("modeled").is_null());
    EXPECT_EQ(printed.at("files"), Json({"made/Llama-260K-pretrain.log", "made/perf_Llama-260K.csv",
                                         "made/Llama-260K-pretrain.html"}));
    for (const Json& file : printed.at("files")) EXPECT_TRUE(has(file.get<std::string>())) << file;
  }
}

/// Returns the names of the commands in a help text.
std::vector<std::string> commands_in(const std::string& help) {
  std::vector<std::string> names;
  const size_t begin = help.find("Subcommands:");
  if (begin == std::string::npos) return names;
  std::istringstream lines(help.substr(begin));
  std::string line;
  std::getline(lines, line);
  // The list ends with an empty line; descriptions continue with more blanks.
  while (std::getline(lines, line) && !line.empty())
    if (line[2] != ' ') names.push_back(line.substr(2, line.find(' ', 2) - 2));
  return names;
}

TEST_F(JsonOutput, IsAFlagOfEveryCommandInHelpAndCompletions) {
  std::vector<std::string> commands;
  for (const std::string& verb : commands_in(works("hearth --help"))) {
    const std::vector<std::string> inner = commands_in(works(fmt::format("hearth {} --help", verb)));
    for (const std::string& name : inner) commands.push_back(verb + " " + name);
    // distill has only subcommands; completions prints a script.
    if (verb != "distill" && verb != "completions") commands.push_back(verb);
  }
  EXPECT_GT(commands.size(), 30U);
  const std::string completions = works("hearth completions fish");
  for (const std::string& command : commands) {
    EXPECT_THAT(works(fmt::format("hearth {} --help", command)), testing::HasSubstr("\n  --json "))
        << command;
    const size_t blank = command.find(' ');
    const std::string seen = blank == std::string::npos
                                 ? command
                                 : fmt::format("{}; and __fish_seen_subcommand_from {}",
                                               command.substr(0, blank), command.substr(blank + 1));
    EXPECT_NE(completions.find(fmt::format("-n '__fish_seen_subcommand_from {}' -l json ", seen)),
              std::string::npos)
        << command;
  }
}

}  // namespace
}  // namespace hearth
