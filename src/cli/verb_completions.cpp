#include <algorithm>

#include "cli/output.h"
#include "cli/verb.h"
#include "recipe/recipe_file.h"

namespace hearth::cli {
namespace {

struct Flag {
  std::string name;  ///< flag with its leading dashes: "--out"
  std::string about;
  bool takes_value;
  std::string choices;  ///< allowed values, separated by spaces; empty: any value, or a file name
};

struct Verb {
  std::string name;  ///< "train"; for a subcommand "bench comm"
  std::string about;
  std::vector<Flag> flags;
  std::string words;  ///< words that may follow the command (subcommands, recipes), separated by spaces
  bool takes_keys;    ///< true if the command accepts recipe overrides (KEY=VALUE)
};

/// Returns the allowed values of an option, separated by spaces. CLI11 has them in the option's type name:
/// "TEXT:{hf,gguf}".
std::string choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t first = type.find('{'), last = type.find('}');
  if (first == std::string::npos || last == std::string::npos) return "";
  std::string choices = type.substr(first + 1, last - first - 1);
  std::replace(choices.begin(), choices.end(), ',', ' ');
  return choices;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

Verb describe(const CLI::App& app, const std::string& name) {
  Verb verb{.name = name,
            .about = first_line(app.get_description()),
            .flags = {},
            .words = "",
            .takes_keys = app.get_allow_extras()};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() && option->get_name() == "recipe") {
      for (const BuiltInRecipe& recipe : built_in_recipes()) verb.words += std::string(recipe.name) + " ";
    }
    if (option->get_group().empty()) continue;
    for (const std::string& flag : option->get_lnames()) {
      verb.flags.push_back({.name = "--" + flag,
                            .about = first_line(option->get_description()),
                            .takes_value = option->get_items_expected_max() > 0,
                            .choices = choices_of(*option)});
    }
  }
  for (const CLI::App* inner : app.get_subcommands(nullptr)) verb.words += inner->get_name() + " ";
  return verb;
}

/// Returns all commands, each followed by its subcommands.
std::vector<Verb> verbs_of(const CLI::App& app, const std::string& before = "") {
  std::vector<Verb> verbs;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    verbs.push_back(describe(*verb, before + verb->get_name()));
    for (Verb& inner : verbs_of(*verb, verb->get_name() + " ")) verbs.push_back(std::move(inner));
  }
  return verbs;
}

bool is_inner(const Verb& verb) { return verb.name.find(' ') != std::string::npos; }

/// Returns the text "KEY= " for every recipe key, as completion words.
std::string keys() {
  std::string words;
  for (const std::string& key : recipe::recipe_keys()) words += key + "= ";
  return words;
}

/// Quotes a text as one shell word in single quotes. Inside them, fish interprets backslashes, but bash and
/// zsh do not.
std::string quoted(const std::string& text, bool fish = false) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += fish ? "\\'" : "'\\''";
    } else if (c == '\\' && fish) {
      out += "\\\\";
    } else {
      out += c;
    }
  }
  return out + "'";
}

/// Returns the patterns of a bash `case` branch that match all subcommands; '' (which matches nothing) if
/// there are none.
std::string inner_names(const std::vector<Verb>& verbs) {
  std::string names;
  for (const Verb& verb : verbs) {
    if (is_inner(verb)) names += (names.empty() ? "" : "|") + quoted(verb.name);
  }
  return names.empty() ? "''" : names;
}

/// Returns the bash `case` branches that set the completion words for the value of each flag.
std::string values_in_bash(const Verb& verb) {
  std::string cases;
  for (const Flag& flag : verb.flags) {
    if (flag.takes_value) cases += fmt::format("        {}) words={} ;;\n", flag.name, quoted(flag.choices));
  }
  return cases;
}

std::string bash_script(const std::vector<Verb>& verbs) {
  std::string names, cases;
  for (const Verb& verb : verbs) {
    if (!is_inner(verb)) names += verb.name + " ";
    std::string flags;
    for (const Flag& flag : verb.flags) flags += flag.name + " ";
    cases += fmt::format("    {})\n      words={}{}\n      case $before in\n{}      esac\n      ;;\n",
                         quoted(verb.name), quoted(verb.words + flags), verb.takes_keys ? "$keys" : "",
                         values_in_bash(verb));
  }
  return fmt::format(R"(# bash completion of hearth, made by: hearth completions bash
_hearth() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} verb=${{COMP_WORDS[1]-}} words=
  local keys={}
  if ((COMP_CWORD == 1)); then verb=; fi
  if ((COMP_CWORD > 2)); then
    case "$verb ${{COMP_WORDS[2]}}" in {}) verb="$verb ${{COMP_WORDS[2]}}" ;; esac
  fi
  case $verb in
    '') words={} ;;
{}  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  if [[ ${{COMPREPLY[0]-}} == *= ]]; then compopt -o nospace 2>/dev/null; fi
}}
complete -o bashdefault -o default -F _hearth hearth
)",
                     quoted(keys()), inner_names(verbs), quoted(names + "--help --version"), cases);
}

/// Returns a word and its description as an argument of zsh's _describe.
std::string described(std::string word, const std::string& about) {
  for (size_t at = 0; (at = word.find(':', at)) != std::string::npos; at += 2) word.insert(at, "\\");
  return " " + quoted(word + ":" + about);
}

std::string case_in_zsh(const Verb& verb) {
  std::string values, flags;
  for (const Flag& flag : verb.flags) {
    flags += described(flag.name, flag.about);
    if (!flag.takes_value) continue;
    values += fmt::format("        {}) {}; return ;;\n", flag.name,
                          flag.choices.empty() ? "_files" : "compadd -- " + flag.choices);
  }
  return fmt::format(
      "    {})\n      case $words[CURRENT-1] in\n{}      esac\n      found=({})\n      _describe flag found\n"
      "{}{}      _files\n      ;;\n",
      quoted(verb.name), values, flags, verb.words.empty() ? "" : "      compadd -- " + verb.words + "\n",
      verb.takes_keys ? "      compadd -S '' -- $=keys\n" : "");
}

std::string zsh_script(const std::vector<Verb>& verbs) {
  std::string names, cases;
  for (const Verb& verb : verbs) {
    if (!is_inner(verb)) names += described(verb.name, verb.about);
    cases += case_in_zsh(verb);
  }
  return fmt::format(R"(#compdef hearth
# zsh completion of hearth, made by: hearth completions zsh
_hearth() {{
  local verb=$words[2] keys={}
  local -a found
  if ((CURRENT == 2)); then
    found=({})
    _describe verb found
    return
  fi
  if ((CURRENT > 3)); then
    case "$verb $words[3]" in {}) verb="$verb $words[3]" ;; esac
  fi
  case $verb in
{}  esac
}}
if [[ $funcstack[1] == _hearth ]]; then _hearth "$@"; else compdef _hearth hearth; fi
)",
                     quoted(keys()), names, inner_names(verbs), cases);
}

/// Returns the condition (a fish command) under which fish offers the completions of a command.
std::string seen_in_fish(const std::string& name) {
  const size_t blank = name.find(' ');
  const std::string seen = "__fish_seen_subcommand_from ";
  return quoted(blank == std::string::npos
                    ? seen + name
                    : seen + name.substr(0, blank) + "; and " + seen + name.substr(blank + 1),
                true);
}

std::string fish_script(const std::vector<Verb>& verbs) {
  std::string lines = "# fish completion of hearth, made by: hearth completions fish\n";
  lines += fmt::format("set -l keys {}\n", keys());
  for (const Verb& verb : verbs) {
    const std::string start = "complete -c hearth -n " + seen_in_fish(verb.name);
    if (!is_inner(verb))
      lines += fmt::format("complete -c hearth -n __fish_use_subcommand -f -a {} -d {}\n", verb.name,
                           quoted(verb.about, true));
    if (!verb.words.empty()) lines += fmt::format("{} -a {}\n", start, quoted(verb.words, true));
    if (verb.takes_keys) lines += start + " -a \"$keys\"\n";
    for (const Flag& flag : verb.flags) {
      const std::string choices = flag.choices.empty() ? "" : " -f -a " + quoted(flag.choices, true);
      lines += fmt::format("{} -l {}{}{} -d {}\n", start, flag.name.substr(2), flag.takes_value ? " -r" : "",
                           choices, quoted(flag.about, true));
    }
  }
  return lines;
}

}  // namespace

void add_completions(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("completions",
                                      "Print a shell script that completes commands, flags and recipe keys");
  const auto shell = std::make_shared<std::string>();
  verb->add_option("shell", *shell, "Shell: bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  verb->footer(
      "The Debian packages install the completions. Otherwise add to ~/.bashrc: source <(hearth completions "
      "bash)");
  set_example(*verb, "hearth completions bash");
  verb->callback([&app, shell] {
    const std::vector<Verb> verbs = verbs_of(app);
    say("{}", *shell == "bash"  ? bash_script(verbs)
              : *shell == "zsh" ? zsh_script(verbs)
                                : fish_script(verbs));
  });
}

}  // namespace hearth::cli
