#include "base/isolated.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

namespace hearth {
namespace {

/// "hang", "die" and "pid" do as they say; else the request comes back.
std::string answer(std::string_view request) {
  if (request == "hang") pause();
  if (request == "die") raise(SIGKILL);
  if (request == "pid") return std::to_string(getpid());
  return std::string(request);
}

TEST(Isolated, AnswersInAnotherProcessThatStays) {
  Isolated apart(answer);
  const auto first = apart.ask("pid", 10);
  ASSERT_TRUE(first);
  EXPECT_NE(*first, std::to_string(getpid()));
  EXPECT_EQ(apart.ask("pid", 10), first);
}

TEST(Isolated, LongAnswersAndEmptyOnesArriveWhole) {
  Isolated apart(answer);
  const std::string text(3'000'000, 'x');
  EXPECT_EQ(apart.ask(text, 60), text);
  EXPECT_EQ(apart.ask("", 10), "");
}

TEST(Isolated, OneThatHangsIsReplaced) {
  Isolated apart(answer);
  const auto before = apart.ask("pid", 10);
  EXPECT_EQ(apart.ask("hang", 0.05), std::nullopt);
  const auto after = apart.ask("pid", 10);
  ASSERT_TRUE(after);
  EXPECT_NE(after, before);
}

TEST(Isolated, OneThatDiesIsReplaced) {
  Isolated apart(answer);
  EXPECT_EQ(apart.ask("die", 10), std::nullopt);
  EXPECT_EQ(apart.ask("here", 10), "here");
}

TEST(Isolated, WhoMustNotWaitLooks) {
  Isolated apart(answer);
  EXPECT_EQ(apart.look(), Isolated::State::idle);
  apart.send("here", 10);
  while (apart.look() == Isolated::State::waiting) usleep(1000);
  ASSERT_EQ(apart.look(), Isolated::State::answered);
  EXPECT_EQ(apart.take(), "here");
  apart.send("hang", 0.05);
  EXPECT_EQ(apart.look(), Isolated::State::waiting);
  while (apart.look() == Isolated::State::waiting) usleep(1000);
  EXPECT_EQ(apart.look(), Isolated::State::lost);
}

TEST(Isolated, WhatItThrowsEndsItsProcessAlone) {
  Isolated apart([](std::string_view) -> std::string { throw 1; });
  EXPECT_EQ(apart.ask("here", 10), std::nullopt);
}

}  // namespace
}  // namespace hearth
