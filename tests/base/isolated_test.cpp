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

TEST(IsolatedProcess, AnswersInAnotherProcessThatStays) {
  IsolatedProcess apart(answer);
  const auto first = apart.ask("pid", 10);
  ASSERT_TRUE(first);
  EXPECT_NE(*first, std::to_string(getpid()));
  EXPECT_EQ(apart.ask("pid", 10), first);
}

TEST(IsolatedProcess, LongAnswersAndEmptyOnesArriveWhole) {
  IsolatedProcess apart(answer);
  const std::string text(3'000'000, 'x');
  EXPECT_EQ(apart.ask(text, 60), text);
  EXPECT_EQ(apart.ask("", 10), "");
}

TEST(IsolatedProcess, OneThatHangsIsReplaced) {
  IsolatedProcess apart(answer);
  const auto before = apart.ask("pid", 10);
  EXPECT_EQ(apart.ask("hang", 0.05), std::nullopt);
  const auto after = apart.ask("pid", 10);
  ASSERT_TRUE(after);
  EXPECT_NE(after, before);
}

TEST(IsolatedProcess, OneThatDiesIsReplaced) {
  IsolatedProcess apart(answer);
  EXPECT_EQ(apart.ask("die", 10), std::nullopt);
  EXPECT_EQ(apart.ask("here", 10), "here");
}

TEST(IsolatedProcess, WhoMustNotWaitLooks) {
  IsolatedProcess apart(answer);
  EXPECT_EQ(apart.look(), IsolatedProcess::State::idle);
  apart.send("here", 10);
  while (apart.look() == IsolatedProcess::State::waiting) usleep(1000);
  ASSERT_EQ(apart.look(), IsolatedProcess::State::answered);
  EXPECT_EQ(apart.take(), "here");
  apart.send("hang", 0.05);
  EXPECT_EQ(apart.look(), IsolatedProcess::State::waiting);
  while (apart.look() == IsolatedProcess::State::waiting) usleep(1000);
  EXPECT_EQ(apart.look(), IsolatedProcess::State::lost);
}

TEST(IsolatedProcess, WhatItThrowsEndsItsProcessAlone) {
  IsolatedProcess apart([](std::string_view) -> std::string { throw 1; });
  EXPECT_EQ(apart.ask("here", 10), std::nullopt);
}

}  // namespace
}  // namespace hearth
